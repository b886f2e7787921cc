//! Reads a `host.func` and the `host.binary`s it launches.

use super::signature::{Signature, TensorSpec};
use super::{Binary, Code, Constant, MapParam, Memory, Place, Program, Step};
use rc_dialects::func::symbols;
use rc_dialects::host::{ASSERT, BINARY, CONSTANT, COPY, FUNC, LAUNCH, RETURN, VIEW};
use rc_ir::{AttrData, Blob, Body, Diagnostic, Dim, Module, Name, OpRef, Result, Value};
use rustc_hash::FxHashMap;

impl Program {
    /// Reads the function `entry` of a module that lower-cpu or lower-cuda has compiled; the module's first `host.func` where none is named.
    pub fn load(module: &Module, entry: Option<&str>) -> Result<Program> {
        let mut functions = module.bodies.iter().filter(|b| b.name(b.root()) == &FUNC);
        let body = functions.find(|b| entry.is_none_or(|e| b.symbol().is_some_and(|s| s == e)));
        let missing = || {
            let what = entry.map_or("a host.func".to_string(), |e| format!("the host.func @{e}"));
            Diagnostic::error(module.loc, format!("the module has no {what}"))
                .help("compile it with --lower-cpu or --lower-cuda")
        };
        Loader::new(module, body.ok_or_else(missing)?)?.load()
    }
}

struct Loader<'a> {
    module: &'a Module,
    body: &'a Body,
    places: FxHashMap<Value, Place>,
    kernels: FxHashMap<Name, usize>,
    program: Program,
}

impl<'a> Loader<'a> {
    fn new(module: &'a Module, body: &'a Body) -> Result<Self> {
        let root = body.op_ref(body.root());
        let malformed = || root.error("is not a planned function");
        let entry = body.entry().ok_or_else(malformed)?;
        let args: Vec<Value> = body.block_args(entry).collect();
        let inputs = root
            .int("inputs")
            .and_then(|n| usize::try_from(n).ok())
            .filter(|&n| n < args.len())
            .ok_or_else(malformed)?;
        let arena =
            root.attr("arena").and_then(|a| a.as_shape()).and_then(|s| s.first().copied()).ok_or_else(malformed)?;
        let mut signature = Signature { symbols: symbols(body), ..Signature::default() };
        let mut places = FxHashMap::default();
        for (i, &arg) in args.iter().enumerate() {
            let memory = match i {
                _ if i + 1 == args.len() => Memory::Arena,
                _ if i < inputs => Memory::Input(i),
                _ => Memory::Output(i - inputs),
            };
            places.insert(arg, Place { memory, offset: Dim::Static(0) });
            let spec = || TensorSpec::new(body.value_name(arg), body.ty(arg)).map_err(|e| root.error(e));
            match memory {
                Memory::Input(_) => signature.inputs.push(spec()?),
                Memory::Output(_) => signature.outputs.push(spec()?),
                _ => {}
            }
        }
        let name = body.symbol().unwrap_or_default();
        let program = Program {
            name,
            signature,
            arena,
            constants: Vec::new(),
            kernels: Vec::new(),
            steps: Vec::new(),
            asserts: Vec::new(),
        };
        Ok(Loader { module, body, places, kernels: FxHashMap::default(), program })
    }

    fn load(mut self) -> Result<Program> {
        let entry = self.body.entry().expect("checked");
        for op in self.body.ops(entry) {
            self.step(self.body.op_ref(op))?;
        }
        Ok(self.program)
    }

    fn place(&self, value: Value) -> Place {
        self.places[&value]
    }

    fn step(&mut self, op: OpRef<'a>) -> Result {
        match op.name() {
            n if n == &VIEW => {
                let offset = op.attr("offset").and_then(|a| a.as_shape()).and_then(|s| s.first().copied());
                let offset = offset.ok_or_else(|| op.error("expects one expression in 'offset'"))?;
                let base = self.place(op.operand(0));
                self.places.insert(op.result(0), Place { offset: base.offset + offset, ..base });
            }
            n if n == &CONSTANT => self.constant(op)?,
            n if n == &LAUNCH => self.launch(op)?,
            n if n == &COPY => {
                let ty = op.body.ty(op.operand(0));
                let bytes = ty.num_elements() * Dim::Static(ty.elem().byte_width().unwrap_or(8) as i64);
                let (from, to) = (self.place(op.operand(0)), self.place(op.operand(1)));
                self.program.steps.push(Step::Copy { from, to, bytes });
            }
            n if n == &ASSERT => {
                let side = |name| op.attr(name).and_then(|a| a.as_shape()).unwrap_or_default().iter().copied();
                self.program.asserts.extend(side("sizes").zip(side("expected")));
            }
            n if n == &RETURN => {}
            _ => return Err(op.unsupported("in a compiled function")),
        }
        Ok(())
    }

    fn constant(&mut self, op: OpRef) -> Result {
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
        let memory = Memory::Constant(self.program.constants.len() - 1);
        self.places.insert(op.result(0), Place { memory, offset: Dim::Static(0) });
        Ok(())
    }

    fn launch(&mut self, op: OpRef) -> Result {
        let callee = Name::new(op.str("callee").ok_or_else(|| op.error("has no callee"))?);
        let kernel = self.kernel(op, callee)?;
        let bound: FxHashMap<Name, Dim> = op
            .attr("bind")
            .and_then(|a| a.as_dialect("bind"))
            .unwrap_or(&[])
            .iter()
            .filter_map(|(name, v)| Some((*name, *v.as_shape()?.first()?)))
            .collect();
        let binary = &self.program.kernels[kernel];
        let symbol = |name: &Name| {
            bound.get(name).copied().ok_or_else(|| op.error(format!("does not bind the symbol '{name}' of its kernel")))
        };
        let symbols = binary.symbols.iter().map(symbol).collect::<Result<Vec<Dim>>>()?;
        let grid = binary.grid.map(|d| d.substitute(&|n| bound.get(&n).copied()));
        let args = op.operands().map(|v| self.place(v)).collect();
        self.program.steps.push(Step::Launch { kernel, args, symbols, grid });
        Ok(())
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
        AttrData::String(text) => Code::Ptx(text.to_string().into()),
        AttrData::Resource { name, .. } => {
            Code::Elf(module.resources.get(name).cloned().ok_or_else(|| missing("code"))?)
        }
        _ => return Err(missing("code")),
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
        shared: number("shared")?,
        scratch: number("scratch")? as usize,
        symbols: symbols(op.body).iter().map(|s| s.name).collect(),
        grid: grid.ok_or_else(|| missing("grid"))?,
        maps: maps.ok_or_else(|| op.error("has malformed 'tensor_maps'"))?,
        arch: op.str("arch").unwrap_or_default().to_string(),
    })
}
