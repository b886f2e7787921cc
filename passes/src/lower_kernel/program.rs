//! A `kernel.func` in the making: operations, constants, sizes, views, and elementwise work on tiles.
//!
//! All tiles of a program have two dimensions. A value that does not depend on what runs along a dimension has size 1
//! there; operands of elementwise operations are repeated to a common shape where they meet.

use super::inside::Start;
use super::keep::Kept;
use super::scope::Held;
use crate::schedule::Target;
use crate::schedule::group::Group;
use rc_dialects::op;
use rc_ir::attr::{AttrData, DenseData};
use rc_ir::body::OpState;
use rc_ir::dim_range::Ranges;
use rc_ir::{Attr, Block, Body, Builder, Dim, Loc, Name, Op, Type, Value};
use rustc_hash::FxHashMap;

/// Dimensions of every tile.
pub const RANK: usize = 2;

pub struct Program<'a> {
    /// The `loop.kernel`.
    pub src: &'a Body,
    pub target: &'a Target,
    pub group: &'a Group,
    /// Bounds of the kernel's symbols.
    pub ranges: Ranges,
    pub out: Body,
    /// Where operations go.
    pub block: Block,
    pub loc: Loc,
    /// The iterators that programs are spread over, where each runs nests once over what it reads: what depends on all of them
    /// is read by no other program, and only once.
    pub spread_over: Option<Vec<Name>>,
    /// Of a branch in which all that is read lies in memory, where padded operands are read from.
    pub no_padding: Option<Vec<Start>>,
    /// Whether both sides of selections are written, where a tile lies on both.
    pub no_branches: bool,
    /// How many programs are a cluster, if they are.
    pub cluster: Option<i64>,
    /// The memory of tensors: arguments of the function.
    pub memory: FxHashMap<Value, Value>,
    /// Results of nests that wait in the program's own memory.
    pub kept: FxHashMap<Value, Kept>,
    /// Values in registers that nests after this one may read.
    pub held: Vec<Held>,
    /// Indices of gathers that are numbers here, read before the loops of a product.
    pub numbers: Vec<Held>,
    entry: Block,
    /// The last of the operations at the head of the function: constants, sizes, views.
    head: Option<Op>,
    sizes: FxHashMap<Dim, Value>,
    views: Vec<(Value, Vec<Dim>, Value)>,
}

impl<'a> Program<'a> {
    pub fn new(src: &'a Body, target: &'a Target, group: &'a Group, ranges: Ranges, out: Body) -> Program<'a> {
        let entry = out.entry().expect("a function has an entry block");
        let loc = out.loc(out.root());
        Program {
            src,
            target,
            group,
            ranges,
            out,
            block: entry,
            loc,
            spread_over: None,
            no_padding: None,
            no_branches: false,
            cluster: None,
            memory: FxHashMap::default(),
            kept: FxHashMap::default(),
            held: Vec::new(),
            numbers: Vec::new(),
            entry,
            head: None,
            sizes: FxHashMap::default(),
            views: Vec::new(),
        }
    }
    pub fn build(&mut self) -> Builder<'_> {
        let mut b = Builder::at_end(&mut self.out, self.block);
        b.loc = self.loc;
        b
    }
    pub fn ty(&self, value: Value) -> Type {
        self.out.ty(value)
    }
    /// Makes an operation at the head of the function, where everything after it can use it.
    fn at_head(&mut self, state: OpState) -> Value {
        let op = self.out.create(state);
        match self.head {
            Some(last) => self.out.insert_after(last, op),
            None => self.out.prepend(self.entry, op),
        }
        self.head = Some(op);
        self.out.result(op, 0)
    }
    fn head_op(&mut self, name: &str, operands: &[Value], attrs: &[(&str, Attr)], ty: Type) -> Value {
        let mut state = OpState::new(name, self.loc);
        state.operands = operands.into();
        state.attrs = Attr::dict(attrs.iter().map(|&(k, v)| (k.into(), v)));
        state.results = [ty].as_slice().into();
        self.at_head(state)
    }
    /// A size over the kernel's symbols, as an index.
    pub fn size(&mut self, dim: Dim) -> Value {
        if let Some(&value) = self.sizes.get(&dim) {
            return value;
        }
        let value = match dim {
            Dim::Static(n) => self.head_op(op::core::CONSTANT, &[], &[("value", Attr::index(n))], Type::index()),
            _ => self.head_op(op::kernel::EXTENT, &[], &[("expr", Attr::shape(&[dim]))], Type::index()),
        };
        self.sizes.insert(dim, value);
        value
    }
    pub fn constant_index(&mut self, n: i64) -> Value {
        self.size(Dim::Static(n))
    }
    /// The next multiple of `n` from an index that is not negative.
    pub fn rounded_up(&mut self, index: Value, n: i64) -> Value {
        let (past, n) = (self.constant_index(n - 1), self.constant_index(n));
        let end = self.add_index(index, past);
        let count = self.binary(op::core::DIV, end, n);
        self.mul_index(count, n)
    }
    /// A constant number.
    pub fn scalar(&mut self, value: Attr) -> Value {
        let ty = value.type_of().expect("a scalar attribute has a type");
        self.head_op(op::core::CONSTANT, &[], &[("value", value)], ty)
    }
    /// The program's place along an axis of the grid.
    pub fn program_id(&mut self, axis: i64) -> Value {
        self.head_op(op::kernel::PROGRAM_ID, &[], &[("axis", Attr::i64(axis))], Type::index())
    }
    /// The program's place in its cluster.
    pub fn cluster_rank(&mut self) -> Value {
        self.head_op(op::kernel::CLUSTER_RANK, &[], &[], Type::index())
    }
    /// Fixed memory of the program's own: on a GPU shared by its threads.
    pub fn alloc(&mut self, shape: &[i64], elem: Type) -> Value {
        let dims: Vec<Dim> = shape.iter().map(|&n| Dim::Static(n)).collect();
        let (align, space) = if self.target.is_cpu() { (64, 5) } else { (128, 3) };
        self.head_op(op::kernel::ALLOC, &[], &[("align", Attr::i64(align))], Type::memref(&dims, elem, space))
    }
    /// A GPU's threads wait for one another, and see what each wrote to shared memory.
    pub fn barrier(&mut self) {
        self.build().op(op::kernel::BARRIER).build();
    }
    /// The memory of an argument seen as a dense memref of another shape.
    pub fn view(&mut self, memory: Value, shape: &[Dim]) -> Value {
        let ty = self.ty(memory);
        if ty.shape().as_slice() == shape {
            return memory;
        }
        if let Some(v) = self.views.iter().find(|v| v.0 == memory && v.1 == shape) {
            return v.2;
        }
        let view = self.head_op(op::kernel::VIEW, &[memory], &[], ty.with_shape(shape));
        self.views.push((memory, shape.to_vec(), view));
        view
    }

    // ---- tiles ----

    /// The sizes of a tile; of a scalar, ones.
    pub fn shape(&self, value: Value) -> [i64; RANK] {
        let ty = self.ty(value);
        if !ty.is_tile() {
            return [1; RANK];
        }
        ty.static_shape().and_then(|s| s.try_into().ok()).expect("tiles of a program have two dimensions")
    }
    /// A constant tile, the same scalar everywhere.
    pub fn splat(&mut self, shape: [i64; RANK], scalar: Attr) -> Value {
        let elem = scalar.type_of().expect("a scalar attribute has a type");
        let value = splat_attr(Type::tile(&shape, elem, None), scalar);
        self.build().op(op::core::CONSTANT).attr("value", value).value()
    }
    pub fn zeros(&mut self, shape: [i64; RANK], elem: Type) -> Value {
        let zero = if elem.is_float() { Attr::float(0.0, elem) } else { Attr::int(0, elem) };
        self.splat(shape, zero)
    }
    /// The tile repeated to a shape, or a scalar everywhere.
    pub fn broadcast(&mut self, value: Value, shape: [i64; RANK]) -> Value {
        let ty = self.ty(value);
        if ty.is_tile() && self.shape(value) == shape {
            return value;
        }
        // A repeated constant is a larger constant.
        if let Some(splat) = rc_ir::op_def::constant_of(&self.out, value) {
            let tile = Type::tile(&shape, ty.elem(), None);
            let attr = match splat.data() {
                AttrData::Dense { data, .. } if data.splat => {
                    Some(Attr::new(AttrData::Dense { ty: tile, data: data.clone() }))
                }
                AttrData::Dense { .. } | AttrData::Resource { .. } => None,
                _ => Some(splat_attr(tile, splat)),
            };
            if let Some(attr) = attr {
                return self.build().op(op::core::CONSTANT).attr("value", attr).value();
            }
        }
        self.build().op(op::kernel::BROADCAST).operand(value).result(Type::tile(&shape, ty.elem(), None)).value()
    }
    /// The shape to which values of these shapes can all be repeated.
    pub fn common(&self, values: &[Value]) -> [i64; RANK] {
        let mut out = [1; RANK];
        for &v in values {
            for (o, n) in out.iter_mut().zip(self.shape(v)) {
                *o = (*o).max(n);
            }
        }
        out
    }
    /// An elementwise operation on tiles (and scalars) of any shapes that agree up to ones; scalars only give a scalar.
    pub fn elementwise(&mut self, name: &str, values: &[Value], attrs: Attr, elem: Type) -> Value {
        if values.iter().all(|&v| !self.ty(v).is_tile()) {
            return self.build().op(name).operands(values).attrs(attrs).result(elem).value();
        }
        let shape = self.common(values);
        let values: Vec<Value> = values.iter().map(|&v| self.broadcast(v, shape)).collect();
        let ty = Type::tile(&shape, elem, None);
        self.build().op(name).operands(&values).attrs(attrs).result(ty).value()
    }
    pub fn binary(&mut self, name: &str, a: Value, b: Value) -> Value {
        let elem = self.ty(a).elem();
        self.elementwise(name, &[a, b], Attr::empty_dict(), elem)
    }
    pub fn unary(&mut self, name: &str, a: Value) -> Value {
        let elem = self.ty(a).elem();
        self.elementwise(name, &[a], Attr::empty_dict(), elem)
    }
    /// 2 to the power of `a`, for weights of a softmax: those below the normal numbers count as none.
    pub fn power_of_2(&mut self, a: Value) -> Value {
        let elem = self.ty(a).elem();
        self.elementwise(op::core::EXP2, &[a], Attr::dict([("flush".into(), Attr::bool(true))]), elem)
    }
    pub fn compare(&mut self, kind: &str, a: Value, b: Value) -> Value {
        let attrs = Attr::dict([("kind".into(), Attr::str(kind))]);
        self.elementwise(op::core::COMPARE, &[a, b], attrs, Type::i1())
    }
    pub fn select(&mut self, cond: Value, a: Value, b: Value) -> Value {
        let elem = self.ty(a).elem();
        self.elementwise(op::core::SELECT, &[cond, a, b], Attr::empty_dict(), elem)
    }
    /// The value with elements of another type.
    pub fn convert(&mut self, value: Value, elem: Type) -> Value {
        if self.ty(value).elem() == elem {
            return value;
        }
        self.elementwise(op::core::CONVERT, &[value], Attr::empty_dict(), elem)
    }
    /// `core.add` of two indices or index tiles; adding zero is nothing.
    pub fn add_index(&mut self, a: Value, b: Value) -> Value {
        match (self.index_constant(a), self.index_constant(b)) {
            (Some(0), _) => b,
            (_, Some(0)) => a,
            _ => self.binary(op::core::ADD, a, b),
        }
    }
    pub fn mul_index(&mut self, a: Value, b: Value) -> Value {
        match (self.index_constant(a), self.index_constant(b)) {
            (Some(1), _) => b,
            (_, Some(1)) => a,
            _ => self.binary(op::core::MUL, a, b),
        }
    }
    fn index_constant(&self, value: Value) -> Option<i64> {
        if self.ty(value).is_tile() {
            return None;
        }
        rc_ir::op_def::constant_of(&self.out, value)?.as_int()
    }
    /// A tile that counts along a dimension.
    pub fn iota(&mut self, start: Value, dim: usize, size: i64) -> Value {
        let mut shape = [1; RANK];
        shape[dim] = size;
        let ty = Type::tile(&shape, Type::index(), None);
        self.build().op(op::kernel::IOTA).operand(start).attr("dim", Attr::i64(dim as i64)).result(ty).value()
    }
    /// `kernel.reduce` along dimensions; those of size 1 need none.
    pub fn reduce(&mut self, value: Value, dims: &[usize], kind: &str) -> Value {
        let mut shape = self.shape(value);
        let dims: Vec<i64> = dims.iter().filter(|&&d| shape[d] > 1).map(|&d| d as i64).collect();
        if dims.is_empty() {
            return value;
        }
        dims.iter().for_each(|&d| shape[d as usize] = 1);
        let ty = self.ty(value).with_shape(&shape.map(Dim::Static));
        let b = &mut self.build();
        b.op(op::kernel::REDUCE)
            .operand(value)
            .attr("dims", Attr::i64s(&dims))
            .attr("kind", Attr::str(kind))
            .result(ty)
            .value()
    }
    /// `kernel.scan`: the prefixes along a dimension, and the totals.
    pub fn scan(&mut self, value: Value, dim: usize, kind: &str, reverse: bool) -> (Value, Value) {
        let ty = self.ty(value);
        let mut shape = self.shape(value);
        shape[dim] = 1;
        let mut b = self.build();
        let op = b.op(op::kernel::SCAN).operand(value).attr("dim", Attr::i64(dim as i64)).attr("kind", Attr::str(kind));
        let op = op.attr("reverse", Attr::bool(reverse)).results(&[ty, ty.with_shape(&shape.map(Dim::Static))]).build();
        (self.out.result(op, 0), self.out.result(op, 1))
    }
    /// `kernel.sort`: rows by the first tile, of which `count` elements are needed, and the other tiles with it.
    pub fn sort(&mut self, tiles: &[Value], count: Option<i64>) -> Vec<Value> {
        let types: Vec<Type> = tiles.iter().map(|&tile| self.ty(tile)).collect();
        let mut b = self.build();
        let op = b.op(op::kernel::SORT).operands(tiles).maybe_attr("count", count.map(Attr::i64));
        let op = op.results(&types).build();
        self.out.results(op).collect()
    }
    /// A sum with one more value: where that is a product of floats and the target has an instruction for both, rounded once.
    pub fn add_to(&mut self, sum: Value, value: Value) -> Value {
        let product = self.out.defining_op(value).filter(|&op| self.out.name(op) == op::core::MUL);
        let fused = self.ty(sum).elem().is_float() && (!self.target.is_cpu() || self.target.has_fma());
        match product.filter(|_| fused) {
            Some(op) => self.fma(self.out.operand(op, 0), self.out.operand(op, 1), sum),
            None => self.binary(op::core::ADD, sum, value),
        }
    }
    /// `a b + c`.
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        let elem = self.ty(a).elem();
        self.elementwise(op::core::FMA, &[a, b, c], Attr::empty_dict(), elem)
    }
    /// `kernel.if` with one result, of the type that `then` gives.
    pub fn if_else<E>(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Self) -> Result<Value, E>,
        otherwise: impl FnOnce(&mut Self) -> Result<Value, E>,
    ) -> Result<Value, E> {
        let (outer, held) = (self.block, self.held.len());
        let mut blocks = [outer; 2];
        let mut values = [condition; 2];
        let detached = self.out.detached_block();
        (blocks[0], self.block) = (detached, detached);
        values[0] = then(self)?;
        self.build().op(op::kernel::YIELD).operand(values[0]).build();
        self.held.truncate(held);
        let detached = self.out.detached_block();
        (blocks[1], self.block) = (detached, detached);
        values[1] = otherwise(self)?;
        self.build().op(op::kernel::YIELD).operand(values[1]).build();
        self.held.truncate(held);
        self.block = outer;
        let ty = self.ty(values[0]);
        let op = self.build().op(op::kernel::IF).operand(condition).results(&[ty]).regions(2).build();
        let regions = self.out.regions(op).to_vec();
        for (region, block) in regions.into_iter().zip(blocks) {
            self.out.attach_block(region, block);
        }
        Ok(self.out.result(op, 0))
    }
    /// `kernel.if` without results or a second region.
    pub fn when<E>(&mut self, condition: Value, then: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let op = self.build().op(op::kernel::IF).operand(condition).regions(1).build();
        let region = self.out.regions(op)[0];
        let inner = self.out.add_block(region, &[]);
        let (outer, held) = (std::mem::replace(&mut self.block, inner), self.held.len());
        then(self)?;
        self.build().op(op::kernel::YIELD).build();
        self.block = outer;
        self.held.truncate(held);
        Ok(())
    }
    /// `kernel.for`: `body` is run once, with the counter and the carried values, to make the loop's body; it gives the next ones.
    pub fn for_loop<E>(
        &mut self,
        bounds: [Value; 3],
        init: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Result<Vec<Value>, E>,
    ) -> Result<Vec<Value>, E> {
        self.unrolled_loop(1, bounds, init, body)
    }
    /// A loop of which the code generator is to make so many steps one.
    pub fn unrolled_loop<E>(
        &mut self,
        steps: i64,
        [lower, upper, step]: [Value; 3],
        init: &[Value],
        body: impl FnOnce(&mut Self, Value, &[Value]) -> Result<Vec<Value>, E>,
    ) -> Result<Vec<Value>, E> {
        let unroll = (steps > 1).then(|| Attr::int(steps, Type::i64()));
        let op = self
            .build()
            .op(op::kernel::FOR)
            .operand(lower)
            .operand(upper)
            .operand(step)
            .operands(init)
            .maybe_attr("unroll", unroll)
            .regions(1)
            .build();
        let types: Vec<Type> = std::iter::once(Type::index()).chain(init.iter().map(|&v| self.ty(v))).collect();
        let region = self.out.regions(op)[0];
        let inner = self.out.add_block(region, &types);
        let args: Vec<Value> = self.out.block_args(inner).collect();
        let (outer, held) = (std::mem::replace(&mut self.block, inner), self.held.len());
        let next = body(self, args[0], &args[1..])?;
        self.build().op(op::kernel::YIELD).operands(&next).build();
        self.block = outer;
        self.held.truncate(held);
        Ok(self.out.results(op).collect())
    }
}

/// `dense<scalar> : ty`.
fn splat_attr(ty: Type, scalar: Attr) -> Attr {
    let bits = match scalar.data() {
        AttrData::Float { bits, .. } => *bits,
        AttrData::Int { value, .. } => *value as u64,
        AttrData::Bool(b) => u64::from(*b),
        _ => return Attr::splat(ty, scalar.as_splat().unwrap_or(0.0)),
    };
    let width = ty.elem().byte_width().unwrap_or(8) as usize;
    let bits = if ty.elem() == Type::i1() { bits & 1 } else { bits };
    Attr::new(AttrData::Dense { ty, data: DenseData { splat: true, bytes: bits.to_le_bytes()[..width].into() } })
}
