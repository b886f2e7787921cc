//! Building the thread-phase body: operations at a cursor, and a prologue at the function's entry for what is the same
//! everywhere (constants, a thread's place), each made once.

use rc_dialects::op;
use rc_ir::attr::{AttrData, DenseData};
use rc_ir::{Attr, Block, Body, Builder, Dim, InsertPoint, Loc, Op, OpState, Result, Type, Value};
use rustc_hash::FxHashMap;

/// An index: a value plus a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ix {
    pub value: Option<Value>,
    pub plus: i64,
}

impl Ix {
    pub fn constant(n: i64) -> Ix {
        Ix { value: None, plus: n }
    }
    pub fn of(value: Value) -> Ix {
        Ix { value: Some(value), plus: 0 }
    }
    pub fn plus(self, n: i64) -> Ix {
        Ix { plus: self.plus + n, ..self }
    }
}

pub struct Emit {
    pub body: Body,
    /// Where operations go: the end of this block.
    pub block: Block,
    pub loc: Loc,
    entry: Block,
    prologue_end: Option<Op>,
    constants: FxHashMap<Attr, Value>,
    /// `(value / stride) % size` of values of the prologue.
    digits: FxHashMap<(Value, i64, i64), Value>,
    sums: FxHashMap<Vec<(Value, i64)>, Ix>,
    extents: FxHashMap<Dim, Value>,
    thread: Option<Value>,
}

impl Emit {
    /// A function like the root of `src`, with an empty entry block of the same arguments.
    pub fn new(src: &Body) -> Result<Emit> {
        let root = src.op_ref(src.root());
        let old = root.entry(0).ok_or_else(|| root.error("has no body"))?;
        let mut body = Body::new(OpState { regions: 1, ..src.state(src.root()) });
        let region = body.regions(body.root())[0];
        let types: Vec<Type> = src.block_args(old).map(|v| src.ty(v)).collect();
        let entry = body.add_block(region, &types);
        let names: Vec<_> = src.block_args(old).map(|v| src.value_name(v)).collect();
        for (i, name) in names.into_iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            body.set_value_name(body.block_arg(entry, i), name);
        }
        Ok(Emit {
            body,
            block: entry,
            loc: root.loc(),
            entry,
            prologue_end: None,
            constants: FxHashMap::default(),
            digits: FxHashMap::default(),
            sums: FxHashMap::default(),
            extents: FxHashMap::default(),
            thread: None,
        })
    }
    pub fn entry(&self) -> Block {
        self.entry
    }
    pub fn ty(&self, value: Value) -> Type {
        self.body.ty(value)
    }

    /// An operation with its operand groups, attributes and, where they are not inferred, result types.
    pub fn op(
        &mut self,
        name: &str,
        groups: &[&[Value]],
        attrs: &[(&str, Attr)],
        results: Option<&[Type]>,
    ) -> Result<Op> {
        let at = InsertPoint::End(self.block);
        self.op_at(at, name, groups, attrs, results)
    }
    fn op_at(
        &mut self,
        at: InsertPoint,
        name: &str,
        groups: &[&[Value]],
        attrs: &[(&str, Attr)],
        results: Option<&[Type]>,
    ) -> Result<Op> {
        let mut builder = Builder { body: &mut self.body, at, loc: self.loc };
        let mut op = builder.op(name);
        for group in groups {
            op = op.operands(group);
        }
        for (key, value) in attrs {
            op = op.attr(key, *value);
        }
        if let Some(types) = results {
            op = op.results(types);
        }
        op.try_build()
    }
    /// An operation with one group of operands and one result, of type `ty` where it is not inferred.
    pub fn value(&mut self, name: &str, operands: &[Value], attrs: &[(&str, Attr)], ty: Option<Type>) -> Result<Value> {
        let types = ty.map(|t| [t]);
        let op = self.op(name, &[operands], attrs, types.as_ref().map(|t| t.as_slice()))?;
        Ok(self.body.result(op, 0))
    }
    /// An elementwise operation whose result type is inferred.
    pub fn core(&mut self, name: &str, operands: &[Value]) -> Result<Value> {
        self.value(name, operands, &[], None)
    }

    /// The value of an expression of the kernel's symbols.
    pub fn extent(&mut self, dim: Dim) -> Result<Value> {
        if let Some(n) = dim.as_static() {
            return self.index(n);
        }
        if let Some(&value) = self.extents.get(&dim) {
            return Ok(value);
        }
        let value = self.prologue(op::kernel::EXTENT, &[], &[("expr", Attr::shape(&[dim]))], None)?;
        self.extents.insert(dim, value);
        Ok(value)
    }
    /// Memory of the program, allocated at the function's entry.
    pub fn alloc(&mut self, memref: Type) -> Result<Value> {
        self.alloc_with(memref, &[])
    }
    pub fn alloc_with(&mut self, memref: Type, attrs: &[(&str, Attr)]) -> Result<Value> {
        self.prologue(op::kernel::ALLOC, &[], attrs, Some(memref))
    }
    fn prologue(&mut self, name: &str, operands: &[Value], attrs: &[(&str, Attr)], ty: Option<Type>) -> Result<Value> {
        let types = ty.map(|t| [t]);
        let at = match (self.prologue_end, self.body.first_op(self.entry)) {
            (Some(last), _) => InsertPoint::After(last),
            (None, Some(first)) => InsertPoint::Before(first),
            (None, None) => InsertPoint::End(self.entry),
        };
        let op = self.op_at(at, name, &[operands], attrs, types.as_ref().map(|t| t.as_slice()))?;
        self.prologue_end = Some(op);
        Ok(self.body.result(op, 0))
    }
    /// A constant, made once for the function. Its attribute states its type.
    pub fn constant(&mut self, attr: Attr) -> Result<Value> {
        if let Some(&value) = self.constants.get(&attr) {
            return Ok(value);
        }
        let value =
            self.prologue(op::core::CONSTANT, &[], &[("value", attr)], Some(attr.type_of().unwrap_or(Type::i1())))?;
        self.constants.insert(attr, value);
        Ok(value)
    }
    /// `value`, rounded, in every lane of a vector or as a scalar.
    pub fn splat_constant(&mut self, ty: Type, value: f64) -> Result<Value> {
        self.constant(if ty.is_vector() {
            Attr::splat(ty, value)
        } else if ty.is_float() {
            Attr::float(value, ty)
        } else if ty == Type::i1() {
            Attr::bool(value != 0.0)
        } else {
            Attr::int(value as i64, ty)
        })
    }
    /// The vector 0, 1, … `lanes` - 1 of integers of type `elem`.
    pub fn lane_numbers(&mut self, lanes: i64, elem: Type) -> Result<Value> {
        let width = elem.byte_width().unwrap_or(8) as usize;
        let bytes: Vec<u8> = (0..lanes).flat_map(|n| n.to_le_bytes().into_iter().take(width)).collect();
        let ty = Type::vector(&[lanes], elem);
        self.constant(Attr::new(AttrData::Dense { ty, data: DenseData { splat: false, bytes: bytes.into() } }))
    }
    pub fn index(&mut self, n: i64) -> Result<Value> {
        self.constant(Attr::index(n))
    }
    /// A scalar in every lane of a vector; the scalar itself for one lane.
    pub fn splat(&mut self, scalar: Value, lanes: i64) -> Result<Value> {
        if lanes == 1 {
            return Ok(scalar);
        }
        let ty = Type::vector(&[lanes], self.ty(scalar));
        self.value(op::kernel::SPLAT, &[scalar], &[], Some(ty))
    }
    /// One lane of a vector, or the scalar itself.
    pub fn extract(&mut self, value: Value, lane: i64) -> Result<Value> {
        if !self.ty(value).is_vector() {
            return Ok(value);
        }
        self.value(op::kernel::EXTRACT, &[value], &[("lane", Attr::i64(lane))], None)
    }
    /// The values' lanes in order; the value itself where it is one.
    pub fn concat(&mut self, parts: &[Value]) -> Result<Value> {
        match parts {
            [one] => Ok(*one),
            _ => self.value(op::kernel::CONCAT, parts, &[], None),
        }
    }
    /// `lanes` lanes from `start` on.
    pub fn slice(&mut self, vector: Value, start: i64, lanes: i64) -> Result<Value> {
        let ty = self.ty(vector);
        if ty.static_shape().as_deref() == Some(&[lanes]) {
            return Ok(vector);
        }
        if lanes == 1 {
            return self.extract(vector, start);
        }
        let part = Type::vector(&[lanes], ty.elem());
        self.value(op::kernel::SLICE, &[vector], &[("start", Attr::i64(start))], Some(part))
    }

    /// The lanes of two vectors that `lanes` numbers, those of the first first.
    pub fn permute(&mut self, vectors: [Value; 2], lanes: &[i64]) -> Result<Value> {
        self.value(op::kernel::PERMUTE, &vectors, &[("lanes", Attr::i64s(lanes))], None)
    }

    // ---- index arithmetic ----

    /// The value of an index.
    pub fn get(&mut self, ix: Ix) -> Result<Value> {
        match ix.value {
            None => self.index(ix.plus),
            Some(value) if ix.plus == 0 => Ok(value),
            Some(value) => {
                let plus = self.index(ix.plus)?;
                self.core(op::core::ADD, &[value, plus])
            }
        }
    }
    pub fn add(&mut self, a: Ix, b: Ix) -> Result<Ix> {
        let value = match (a.value, b.value) {
            (Some(a), Some(b)) => Some(self.core(op::core::ADD, &[a, b])?),
            (a, b) => a.or(b),
        };
        Ok(Ix { value, plus: a.plus + b.plus })
    }
    pub fn sub(&mut self, a: Ix, b: Ix) -> Result<Ix> {
        let Some(b_value) = b.value else { return Ok(a.plus(-b.plus)) };
        let a = self.get(a)?;
        Ok(Ix { value: Some(self.core(op::core::SUB, &[a, b_value])?), plus: -b.plus })
    }
    pub fn compare(&mut self, kind: &str, a: Value, b: Value) -> Result<Value> {
        self.value(op::core::COMPARE, &[a, b], &[("kind", Attr::str(kind))], None)
    }

    // ---- a thread's place, in the prologue ----

    /// `(of / stride) % size` of a value of the prologue; `within` is how many values `of` may have, 0 if unknown.
    fn digit_of(&mut self, of: Value, stride: i64, size: i64, within: i64) -> Result<Value> {
        if let Some(&value) = self.digits.get(&(of, stride, size)) {
            return Ok(value);
        }
        let mut value = of;
        if stride > 1 {
            let by = self.index(stride)?;
            value = self.prologue(op::core::DIV, &[value, by], &[], None)?;
        }
        if within != stride * size {
            let by = self.index(size)?;
            value = self.prologue(op::core::REM, &[value, by], &[], None)?;
        }
        self.digits.insert((of, stride, size), value);
        Ok(value)
    }
    pub fn thread_id(&mut self) -> Result<Value> {
        if let Some(value) = self.thread {
            return Ok(value);
        }
        let value = self.prologue(op::kernel::THREAD_ID, &[], &[], Some(Type::index()))?;
        self.body.set_value_name(value, rc_ir::Name::new("thread"));
        self.thread = Some(value);
        Ok(value)
    }
    /// `(lane / stride) % size`.
    pub fn lane_digit(&mut self, stride: i64, size: i64) -> Result<Value> {
        let thread = self.thread_id()?;
        let lane = self.digit_of(thread, 1, super::layout::WARP, 0)?;
        self.digit_of(lane, stride, size, super::layout::WARP)
    }
    /// A part of memory of the prologue, at a place of the prologue.
    pub fn part_everywhere(&mut self, memory: Value, at: Value, part: Type) -> Result<Value> {
        self.prologue(op::kernel::VIEW, &[memory, at], &[], Some(part))
    }
    /// The program's place in its cluster.
    pub fn cluster_rank(&mut self) -> Result<Value> {
        self.prologue(op::kernel::CLUSTER_RANK, &[], &[], None)
    }
    /// `(warp / stride) % size` in a program of `warps` warps.
    pub fn warp_digit(&mut self, stride: i64, size: i64, warps: i64) -> Result<Value> {
        let thread = self.thread_id()?;
        let warp = self.digit_of(thread, super::layout::WARP, warps, super::layout::WARP * warps)?;
        self.digit_of(warp, stride, size, warps)
    }
    /// The sum of the digits by their weights, in the prologue.
    pub fn combine_digits(&mut self, digits: &[(Value, i64)]) -> Result<Ix> {
        if let Some(&known) = self.sums.get(digits) {
            return Ok(known);
        }
        let mut sum: Option<Value> = None;
        for &(digit, weight) in digits {
            let mut term = digit;
            if weight != 1 {
                let by = self.index(weight)?;
                term = self.prologue(op::core::MUL, &[digit, by], &[], None)?;
            }
            sum = Some(match sum {
                Some(sum) => self.prologue(op::core::ADD, &[sum, term], &[], None)?,
                None => term,
            });
        }
        let ix = Ix { value: sum, plus: 0 };
        self.sums.insert(digits.to_vec(), ix);
        Ok(ix)
    }
}
