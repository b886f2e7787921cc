//! Reads a `host.func`, the functions it calls, in their places, and the `host.binary`s that they launch.

mod control;
mod foreign;

use super::pace::Sharing;
use super::signature::{Signature, TensorSpec};
use super::{Binary, Code, Constant, MapParam, Memory, Place, Program, Step};
use rc_dialects::func::{arg_names, symbols};
use rc_dialects::host::{ASSERT, BINARY, CALL, CONSTANT, COPY, FOR, FOREIGN, FUNC, IF, LAUNCH, RETURN, VIEW, WHILE};
use rc_ir::{AttrData, Blob, Body, Diagnostic, Dim, Module, Name, Op, OpRef, Result, Type, Value};
use rc_machine::Target;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

impl Program {
    /// Reads the function `entry` of a module that lower-cpu or lower-cuda has compiled; the module's first public `host.func` where none is named.
    pub fn load(module: &Module, entry: Option<&str>) -> Result<Program> {
        let mut functions = module.bodies.iter().filter(|b| b.name(b.root()) == &FUNC);
        let wanted = |b: &&Body| entry.map_or(!b.is_private(), |e| b.symbol().is_some_and(|s| s == e));
        let body = functions.find(wanted);
        let missing = || {
            let compiled = module.bodies.iter().filter(|b| b.name(b.root()) == &FUNC && !b.is_private());
            let names: Vec<&str> = compiled.filter_map(|b| b.symbol()).map(|s| s.as_str()).collect();
            match entry {
                Some(e) if !names.is_empty() => {
                    let names = names.join(", ");
                    Diagnostic::error(module.loc, format!("the module has no function @{e}; it has {names}"))
                }
                _ => Diagnostic::error(module.loc, "the module has no host.func")
                    .help("compile it with --lower-cpu or --lower-cuda"),
            }
        };
        Loader::load(module, body.ok_or_else(missing)?)
    }
}

/// Turns after which a `core.while` of the module is an error.
pub(crate) fn while_limit(module: &Module) -> Option<usize> {
    module.attr("rc.while_limit")?.as_int().and_then(|n| usize::try_from(n).ok())
}

/// What `Program::sharing` is for the module's processor; 0 where it does not say which.
fn sharing(module: &Module) -> Result<Sharing> {
    let threads = Target::of_module(module.attrs)?.and_then(|target| target.cpu).map(|cpu| cpu.threads);
    let nanos = |us: f64| (1e3 * us) as u32;
    Ok(threads.map_or(Sharing::default(), |t| Sharing { shared: nanos(t.shared), tried: nanos(t.tried) }))
}

struct Loader<'a> {
    module: &'a Module,
    kernels: FxHashMap<Name, usize>,
    /// By function and operation: what is called twice has its constants once.
    constants: FxHashMap<(Name, Op), usize>,
    program: Program,
    /// Steps so far.
    read: usize,
}

/// Functions that call functions, to this depth.
const DEEPEST: usize = 32;
/// A loop's body is read twice, so nested ones soon have many steps.
const MOST_STEPS: usize = 1 << 20;

/// A function whose steps are being read, as it is called.
pub(super) struct Scope<'a> {
    pub body: &'a Body,
    pub places: FxHashMap<Value, Place>,
    /// Its symbols over those of the program; `None` for the program's own function.
    pub bound: Option<FxHashMap<Name, Dim>>,
    /// Where its arena ends in the program's.
    pub end: Dim,
    /// The loops around the call.
    pub depth: usize,
    /// The calls around it.
    pub calls: usize,
}

impl Scope<'_> {
    pub fn place(&self, value: Value) -> Place {
        self.places[&value].clone()
    }
    /// Whether it is the function's arena, its last argument.
    fn is_arena(&self, value: Value) -> bool {
        self.body.entry().and_then(|entry| self.body.block_args(entry).last()) == Some(value)
    }
    /// An expression over the program's symbols.
    pub fn dim(&self, dim: Dim) -> Dim {
        match &self.bound {
            Some(bound) => dim.substitute(&|name| bound.get(&name).copied()),
            None => dim,
        }
    }
    /// A buffer's bytes.
    pub fn bytes(&self, ty: Type) -> Dim {
        self.dim(ty.num_elements() * Dim::Static(ty.elem().byte_width().unwrap_or(1).max(1) as i64))
    }
}

impl Place {
    pub(super) fn start(memory: Memory) -> Place {
        Place { memory, offset: Dim::Static(0), turns: SmallVec::new(), guarded: None }
    }
    pub(super) fn plus(self, bytes: Dim) -> Place {
        let guarded = self.guarded.filter(|_| bytes == Dim::Static(0));
        Place { offset: self.offset + bytes, guarded, ..self }
    }
}

/// The arguments of a planned function, how many are inputs, and the arena's size.
pub(super) fn planned(body: &Body) -> Result<(Vec<Value>, usize, Dim)> {
    let root = body.op_ref(body.root());
    let malformed = || root.error("is not a planned function");
    let args: Vec<Value> = body.block_args(body.entry().ok_or_else(malformed)?).collect();
    let inputs = root.int("inputs").and_then(|n| usize::try_from(n).ok()).filter(|&n| n < args.len());
    let arena = root.attr("arena").and_then(|a| a.as_shape()).and_then(|s| s.first().copied());
    Ok((args, inputs.ok_or_else(malformed)?, arena.ok_or_else(malformed)?))
}

/// The inputs that one of the function's lists names: `constant`, those that are the same at every call; `updated`, those that it writes to.
fn inputs_in(root: OpRef, list: &str, inputs: usize) -> Result<Vec<usize>> {
    let numbers = root.ints(list).unwrap_or_default();
    let number = |n: i64| usize::try_from(n).ok().filter(|&i| i < inputs);
    let all: Option<Vec<usize>> = numbers.iter().map(|&n| number(n)).collect();
    all.ok_or_else(|| root.error(format!("has {inputs} inputs, and others in '{list}'")))
}

/// Where the slabs of a function's arena begin and end.
fn slabs(root: OpRef) -> Result<Vec<(usize, usize)>> {
    let numbers = root.ints("slabs").unwrap_or_default();
    let range = |pair: &[i64]| match *pair {
        [from, to] if 0 <= from && from <= to => Some((from as usize, to as usize)),
        _ => None,
    };
    let ranges: Option<Vec<_>> = numbers.chunks(2).map(range).collect();
    ranges.ok_or_else(|| root.error("has malformed pairs of bytes in 'slabs'"))
}

impl<'a> Loader<'a> {
    fn load(module: &'a Module, body: &'a Body) -> Result<Program> {
        let root = body.op_ref(body.root());
        let (args, inputs, arena) = planned(body)?;
        let mut signature = Signature { symbols: symbols(body), ..Signature::default() };
        let mut places = FxHashMap::default();
        let names = arg_names(body);
        for (i, &arg) in args.iter().enumerate() {
            let memory = match i {
                _ if i + 1 == args.len() => Memory::Arena(0),
                _ if i < inputs => Memory::Input(i),
                _ => Memory::Output(i - inputs),
            };
            places.insert(arg, Place::start(memory));
            let spec =
                || TensorSpec::new(names.get(i).copied().unwrap_or_default(), body.ty(arg)).map_err(|e| root.error(e));
            match memory {
                Memory::Input(_) => signature.inputs.push(spec()?),
                Memory::Output(_) => signature.outputs.push(spec()?),
                _ => {}
            }
        }
        let name = body.symbol().unwrap_or_default();
        let constant_inputs = inputs_in(root, "constant", inputs)?;
        let updated_inputs = inputs_in(root, "updated", inputs)?;
        let mut left_in = vec![None; signature.outputs.len()];
        for pair in root.ints("updates").unwrap_or_default().chunks(2) {
            let place = usize::try_from(pair[0]).ok().and_then(|result| left_in.get_mut(result));
            let input = pair.get(1).and_then(|&n| usize::try_from(n).ok()).filter(|&i| i < inputs);
            let (Some(place), Some(input)) = (place, input) else {
                return Err(root.error("has malformed pairs of results and inputs in 'updates'"));
            };
            *place = Some(input);
        }
        let program = Program {
            name,
            signature,
            constant_inputs,
            updated_inputs,
            left_in,
            arena,
            slabs: slabs(root)?,
            constants: Vec::new(),
            kernels: Vec::new(),
            foreign: Vec::new(),
            steps: Vec::new(),
            asserts: Vec::new(),
            while_limit: while_limit(module),
            sharing: sharing(module)?,
            guard: root.int("guard").and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
        };
        let (kernels, constants) = (FxHashMap::default(), FxHashMap::default());
        let mut loader = Loader { module, kernels, constants, program, read: 0 };
        loader.program.steps = loader.steps(Scope { body, places, bound: None, end: arena, depth: 0, calls: 0 })?;
        Ok(loader.program)
    }

    /// The steps of a function.
    pub(super) fn steps(&mut self, mut scope: Scope<'a>) -> Result<Vec<Step>> {
        let body = scope.body;
        let entry = body.entry().ok_or_else(|| body.op_ref(body.root()).error("has no body"))?;
        let mut steps = Vec::new();
        for op in body.ops(entry) {
            let more = self.step(&mut scope, body.op_ref(op))?;
            self.read += more.len();
            if self.read > MOST_STEPS {
                let what = format!("a function that is more than {MOST_STEPS} steps with those that it calls");
                return Err(body.op_ref(op).unsupported(what).help("nest fewer loops, or call fewer functions"));
            }
            steps.extend(more);
        }
        Ok(steps)
    }

    fn step(&mut self, scope: &mut Scope<'a>, op: OpRef<'a>) -> Result<Vec<Step>> {
        Ok(match op.name() {
            n if n == &VIEW => {
                let offset = op.attr("offset").and_then(|a| a.as_shape()).and_then(|s| s.first().copied());
                let offset = offset.ok_or_else(|| op.error("expects one expression in 'offset'"))?;
                let mut place = scope.place(op.operand(0)).plus(scope.dim(offset));
                if scope.calls == 0 && scope.is_arena(op.operand(0)) {
                    place.memory = Memory::Arena(self.slab(op)?);
                }
                // A part of a buffer has no bands of its own.
                place.guarded = place.guarded.filter(|_| op.body.ty(op.result(0)).is_row_major());
                if self.program.guard > 0 && scope.is_arena(op.operand(0)) {
                    place.guarded = Some(scope.bytes(op.body.ty(op.result(0))));
                }
                scope.places.insert(op.result(0), place);
                Vec::new()
            }
            n if n == &CONSTANT => {
                let place = Place::start(Memory::Constant(self.constant(op)?));
                scope.places.insert(op.result(0), place);
                Vec::new()
            }
            n if n == &LAUNCH => vec![self.launch(scope, op)?],
            n if n == &COPY => {
                let bytes = scope.bytes(op.body.ty(op.operand(0)));
                vec![Step::Copy { from: scope.place(op.operand(0)), to: scope.place(op.operand(1)), bytes }]
            }
            n if n == &ASSERT => {
                let side = |name| op.attr(name).and_then(|a| a.as_shape()).unwrap_or_default();
                for (&size, &expected) in side("sizes").iter().zip(side("expected")) {
                    let pair = (scope.dim(size), scope.dim(expected));
                    if !self.program.asserts.contains(&pair) {
                        self.program.asserts.push(pair);
                    }
                }
                Vec::new()
            }
            n if n == &FOREIGN => vec![self.foreign(scope, op)?],
            n if n == &RETURN => Vec::new(),
            n if [&CALL, &IF, &WHILE, &FOR].iter().any(|control| n == *control) => self.control(scope, op)?,
            _ => return Err(op.unsupported("in a compiled function")),
        })
    }

    /// The slab of a view of the arena.
    fn slab(&self, op: OpRef) -> Result<usize> {
        let number = op.int("slab").map_or(Some(0), |n| usize::try_from(n).ok());
        let count = self.program.slabs.len();
        // Where there are slabs, each view names one.
        let named = count == 0 || op.attr("slab").is_some();
        number
            .filter(|&n| named && n < count.max(1))
            .ok_or_else(|| op.error(format!("names none of the function's {count} slabs in 'slab'")))
    }

    fn constant(&mut self, op: OpRef) -> Result<usize> {
        let key = (op.body.symbol().unwrap_or_default(), op.op);
        if let Some(&known) = self.constants.get(&key) {
            return Ok(known);
        }
        let value = op.attr("value").ok_or_else(|| op.error("has no value"))?;
        let bytes = match value.data() {
            AttrData::Resource { name, .. } => {
                let found = self.module.resources.get(name).cloned();
                found.ok_or_else(|| {
                    op.error(format!("refers to the resource '{name}', which the module does not have"))
                })?
            }
            AttrData::Dense { ty, data } if data.splat => {
                let count = ty.num_elements().as_static().unwrap_or(0).max(0) as usize;
                let mut bytes = Vec::new();
                let size = data.bytes.len().checked_mul(count);
                if size.is_none_or(|size| bytes.try_reserve_exact(size).is_err()) {
                    return Err(
                        op.error(format!("holds a constant of type {ty}, for which there is not enough memory"))
                    );
                }
                (0..count).for_each(|_| bytes.extend_from_slice(&data.bytes));
                Blob::new(bytes)
            }
            AttrData::Dense { data, .. } => Blob::new(data.bytes.clone()),
            _ => return Err(op.unsupported(format!("of the value {value}"))),
        };
        self.program.constants.push(Constant { bytes });
        let index = self.program.constants.len() - 1;
        self.constants.insert(key, index);
        Ok(index)
    }

    fn launch(&mut self, scope: &Scope, op: OpRef) -> Result<Step> {
        let callee = Name::new(op.str("callee").ok_or_else(|| op.error("has no callee"))?);
        let kernel = self.kernel(op, callee)?;
        let bound: FxHashMap<Name, Dim> = op
            .attr("bind")
            .and_then(|a| a.as_dialect("bind"))
            .unwrap_or(&[])
            .iter()
            .filter_map(|(name, v)| Some((*name, scope.dim(*v.as_shape()?.first()?))))
            .collect();
        let binary = &self.program.kernels[kernel];
        let symbol = |name: &Name| {
            bound.get(name).copied().ok_or_else(|| op.error(format!("does not bind the symbol '{name}' of its kernel")))
        };
        let symbols = binary.symbols.iter().map(symbol).collect::<Result<Vec<Dim>>>()?;
        let grid = binary.grid.map(|d| d.substitute(&|n| bound.get(&n).copied()));
        let args = op.operands().map(|v| scope.place(v)).collect();
        // What is called begins behind all that is before the call.
        let after = op
            .ints("after")
            .filter(|_| scope.calls == 0)
            .map(|distances| distances.iter().map(|&d| d as usize).collect());
        Ok(Step::Launch { kernel, args, symbols, grid, after })
    }

    fn kernel(&mut self, op: OpRef, callee: Name) -> Result<usize> {
        if let Some(&index) = self.kernels.get(&callee) {
            return Ok(index);
        }
        let found = self.module.symbol(callee).filter(|b| b.name(b.root()) == &BINARY);
        let body = found.ok_or_else(|| {
            op.error(format!("launches @{callee}, which has no machine code"))
                .help("compile with --lower-cpu or --lower-cuda")
        })?;
        let index = self.program.kernels.len();
        self.program.kernels.push(binary(self.module, body.op_ref(body.root()))?);
        self.kernels.insert(callee, index);
        Ok(index)
    }
}

fn binary(module: &Module, op: OpRef) -> Result<Binary> {
    let missing = |what: &str| op.error(format!("expects the attribute '{what}'"));
    let grid = op.attr("grid").and_then(|a| a.as_shape()).and_then(|s| <[Dim; 3]>::try_from(s).ok());
    let code = op.attr("code").ok_or_else(|| missing("code"))?;
    let code = match code.data() {
        AttrData::Resource { name, .. } => module.resources.get(name).cloned().ok_or_else(|| missing("code"))?,
        _ => return Err(missing("code")),
    };
    let code = match op.str("format") {
        Some("ptx") => Code::Ptx(code),
        _ => Code::Elf(code),
    };
    let number = |name: &str| op.int(name).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| missing(name));
    let cluster = op.ints("cluster").and_then(|c| <[i64; 3]>::try_from(c).ok()).map(|c| c.map(|n| n as u32));
    let maps = op.attr("tensor_maps").and_then(|a| a.as_array()).unwrap_or_default();
    let maps: Option<Vec<MapParam>> = maps.iter().map(|&map| MapParam::read(map)).collect();
    Ok(Binary {
        name: op.body.symbol().unwrap_or_default(),
        code,
        threads: number("threads")?,
        cluster,
        early: op.bool("early"),
        prefer_l1: op.bool("prefer_l1"),
        table: op.bool("table"),
        shared: number("shared")?,
        scratch: number("scratch")? as usize,
        symbols: symbols(op.body).iter().map(|s| s.name).collect(),
        grid: grid.ok_or_else(|| missing("grid"))?,
        maps: maps.ok_or_else(|| op.error("has malformed 'tensor_maps'"))?,
        arch: op.str("arch").unwrap_or_default().to_string(),
    })
}
