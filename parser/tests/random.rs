//! Generated modules read back as they were, in both forms.

use crate::common::*;
use proptest::prelude::*;
use rc_ir::attr::AttrData;
use rc_ir::op_def::OpDef;
use rc_ir::types::{FloatKind, Signedness};
use rc_ir::{Attr, Blob, Block, Body, Builder, Dim, Module, Name, OpState, Region, Type, TypeData, Value};

/// A stream of decisions. Shorter and smaller streams make smaller modules, so failures shrink.
pub struct Choices {
    data: Vec<u32>,
    at: usize,
    /// Whether to make only what MLIR's own types and attributes allow.
    pub only_mlir: bool,
}

impl Choices {
    pub fn new(data: Vec<u32>) -> Self {
        Choices { data, at: 0, only_mlir: false }
    }
    fn raw(&mut self) -> u32 {
        self.at += 1;
        self.data.get(self.at - 1).copied().unwrap_or(0)
    }
    fn below(&mut self, n: usize) -> usize {
        self.raw() as usize % n
    }
    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
    fn is_over(&self) -> bool {
        self.at >= self.data.len()
    }
    fn some<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    // ---- types and attributes ----

    fn name(&mut self) -> Name {
        const NAMES: [&str; 16] = [
            "x", "y", "acc", "bb1", "f32", "tensor", "true", "a.b", "s-1", "$", "_0", "größe", "a b", "7", "dense",
            "x_0",
        ];
        Name::new(self.pick(&NAMES))
    }
    fn dim(&mut self, depth: u32) -> Dim {
        if depth == 0 || self.flip() {
            return match self.below(4) {
                0 => Dim::Static(self.pick(&[0, 1, 7, 768, 1 << 40])),
                1 => Dim::Dynamic,
                _ => Dim::symbol(self.pick(&["s", "t", "x", "mod", "max", "f32", "s0"])),
            };
        }
        let (a, b) = (self.dim(depth - 1), self.dim(depth - 1));
        match self.below(6) {
            0 => a + b,
            1 => a - b,
            2 => a * Dim::Static(3),
            3 => a.floordiv(b),
            4 => a.modulo(Dim::Static(4)),
            _ => a.max(b).min(Dim::symbol("s")),
        }
    }
    fn size(&mut self) -> i64 {
        self.pick(&[0, 1, 2, 5, 1 << 40])
    }
    fn scalar(&mut self) -> Type {
        match self.below(4) {
            0 => Type::index(),
            1 => Type::float(self.pick(&FloatKind::ALL)),
            _ => {
                let signedness = self.pick(&[Signedness::Signless, Signedness::Signed, Signedness::Unsigned]);
                Type::new(TypeData::Integer { width: self.pick(&[1, 4, 8, 16, 32, 64]), signedness })
            }
        }
    }
    pub fn ty(&mut self, depth: u32) -> Type {
        if depth == 0 {
            return self.scalar();
        }
        let depth = depth - 1;
        let elem = self.scalar();
        match self.below(16) {
            0..4 => elem,
            4..8 => {
                let shape: Box<[Dim]> = self.some(3, |c| c.tensor_dim()).into();
                let encoding = if self.below(5) == 0 { Some(self.foreign()) } else { None };
                Type::new(TypeData::Tensor { shape, elem, encoding })
            }
            8 => {
                let shape: Box<[Dim]> = self.some(3, |c| c.tensor_dim()).into();
                let fits = !self.only_mlir || shape.len() == 2;
                let layout =
                    (self.flip() && fits).then(|| Attr::new(AttrData::Opaque(Name::new("strided<[4, 1], offset: ?>"))));
                let space =
                    self.flip().then(|| Attr::int(1 + self.below(5) as i64, self.pick(&[Type::i64(), Type::i32()])));
                Type::new(TypeData::MemRef { shape, elem, layout, space })
            }
            9 => {
                let sizes = self.some(3, |c| c.size());
                let sizes: Vec<i64> = if self.only_mlir { sizes.iter().map(|n| n + 1).collect() } else { sizes };
                Type::vector(&sizes, elem)
            }
            10 => Type::new(TypeData::Tuple(self.some(3, |c| c.ty(depth)).into())),
            11 => Type::function(&self.some(3, |c| c.ty(depth)), &self.some(2, |c| c.ty(depth))),
            12 => {
                let layout = if self.flip() { Some(self.dialect_attr(depth)) } else { None };
                Type::tile(&self.some(3, |c| c.size()), elem, layout)
            }
            13 => Type::dialect("pair", &self.some(3, |c| c.attr(depth))),
            14 => Type::new(TypeData::Opaque(Name::new(self.pick(&[
                "llvm.ptr",
                "foo.bar<a -> (b), [{}]>",
                "x.y<\">\">",
            ])))),
            _ => self.pick(&[
                Type::none(),
                Type::new(TypeData::Complex(Type::f32())),
                Type::new(TypeData::UnrankedTensor(Type::i1())),
            ]),
        }
    }
    /// A type's dimension: not negative, which no text can say.
    fn tensor_dim(&mut self) -> Dim {
        match self.dim(2) {
            Dim::Static(n) => Dim::Static(n.max(0)),
            other => other,
        }
    }
    fn foreign(&mut self) -> Attr {
        Attr::new(AttrData::Opaque(Name::new(self.pick(&["#foo.enc<[1]>", "affine_map<(d0) -> (d0)>", "#foo.plain"]))))
    }
    fn dialect_attr(&mut self, depth: u32) -> Attr {
        let params = self.some(3, |c| {
            let key = if c.flip() { Name::EMPTY } else { c.name() };
            (key, c.attr(depth))
        });
        Attr::new(AttrData::Dialect { name: Name::new("sched"), params: params.into() })
    }
    fn int(&mut self, ty: Type) -> Attr {
        let n = self.pick(&[0i64, 1, -1, 5, 127, i64::MAX, i64::MIN]);
        let width = ty.bit_width().unwrap_or(64);
        let signed = n >> (64 - width.min(64)).min(63);
        if ty == Type::i1() {
            Attr::bool(n != 0)
        } else if ty.is_unsigned() {
            Attr::int(signed.max(0), ty)
        } else {
            Attr::int(signed, ty)
        }
    }
    fn float(&mut self) -> Attr {
        let kind = self.pick(&FloatKind::ALL);
        let mut bits = u64::from(self.raw()) << 32 | u64::from(self.raw());
        bits &= if kind.bits() == 64 { u64::MAX } else { (1 << kind.bits()) - 1 };
        if kind == FloatKind::TF32 {
            bits &= !0x1fff;
        }
        Attr::new(AttrData::Float { bits, ty: Type::float(kind) })
    }
    fn text(&mut self) -> Attr {
        Attr::str(self.pick(&["", "word", "f32", "true", "a b", "\"\\\n", "ö", "unit", "x.y", "[1]"]))
    }
    fn dense(&mut self) -> Attr {
        let elem = self.scalar();
        let width = elem.byte_width().unwrap() as usize;
        let sizes: Vec<i64> = self.some(3, |c| c.pick(&[0, 1, 2, 3]));
        let count = sizes.iter().product::<i64>() as usize;
        let mut bytes: Vec<u8> = (0..count * width).map(|_| self.raw() as u8).collect();
        for element in bytes.chunks_mut(width) {
            match elem.bit_width() {
                _ if elem.float_kind() == Some(FloatKind::TF32) => (element[0], element[1]) = (0, element[1] & 0xe0),
                Some(1) => element[0] &= 1,
                Some(4) => {
                    element[0] = if elem.is_unsigned() { element[0] & 15 } else { (element[0] & 15) ^ 8 }
                        .wrapping_sub(if elem.is_unsigned() { 0 } else { 8 })
                }
                _ => {}
            }
        }
        Attr::dense(Type::tensor_of(&sizes, elem), bytes)
    }
    pub fn attr(&mut self, depth: u32) -> Attr {
        if depth == 0 {
            return match self.below(5) {
                0 => Attr::bool(self.flip()),
                1 => self.text(),
                2 => self.float(),
                3 => self.int(Type::i64()),
                _ => {
                    let ty = self.scalar();
                    if ty.is_float() { Attr::unit() } else { self.int(ty) }
                }
            };
        }
        let depth = depth - 1;
        match self.below(12) {
            0..3 => self.attr(0),
            3 => Attr::array(&self.some(3, |c| c.attr(depth))),
            4 => Attr::dict(self.some(3, |c| (c.name(), c.attr(depth)))),
            5 => Attr::i64s(&self.some(3, |c| c.size())),
            6 => Attr::ty(self.ty(depth)),
            7 => Attr::new(AttrData::Symbol { root: self.name(), nested: self.some(2, |c| c.name()).into() }),
            8 => Attr::shape(&self.some(3, |c| c.dim(2))),
            9 => self.dialect_attr(depth),
            10 => self.dense(),
            _ => {
                let foreign = self.foreign();
                self.pick(&[Attr::resource("blob", Type::tensor_of(&[3], Type::i8())), Attr::i32s(&[]), foreign])
            }
        }
    }
    fn dict(&mut self) -> Attr {
        Attr::dict(self.some(3, |c| (c.name(), c.attr(2))))
    }
    /// Attributes that a declaration describes.
    fn declared(&mut self, def: &OpDef) -> Attr {
        use rc_ir::op_def::AttrKind as K;
        let mut entries = Vec::new();
        for declared in def.attrs.iter().filter(|a| a.name != "maps") {
            if self.flip() {
                continue;
            }
            let value = match declared.kind {
                K::Any => self.attr(2),
                K::Unit => Attr::unit(),
                K::Bool => Attr::bool(self.flip()),
                K::I64 => {
                    let ty = self.pick(&[Type::i64(), Type::index()]);
                    self.int(ty)
                }
                K::I32 => self.int(Type::i32()),
                K::F32 => Attr::new(AttrData::Float { bits: u64::from(self.raw()), ty: Type::f32() }),
                K::F64 => Attr::float(f64::from(self.raw()) / 3.0, Type::f64()),
                K::Str => self.text(),
                K::Enum(words) => Attr::str(self.pick(words)),
                K::I64Array => Attr::i64s(&self.some(3, |c| c.size())),
                K::I32Array => Attr::i32s(&self.some(3, |c| c.below(9) as i64 - 4)),
                K::Array => Attr::array(&self.some(3, |c| c.attr(1))),
                K::StrArray => Attr::array(&self.some(3, |c| c.text())),
                K::Dict => self.dict(),
                K::Type => Attr::ty(self.ty(2)),
                K::Symbol => Attr::symbol(self.name()),
                K::Shape => Attr::shape(&self.some(3, |c| c.dim(2))),
                K::ShapeArray => Attr::array(&self.some(3, |c| Attr::shape(&c.some(2, |c| c.dim(1))))),
                K::Elements => self.dense(),
                K::Dialect(name) => {
                    let attr = self.dialect_attr(2);
                    Attr::dialect(name, &[("inner", attr)])
                }
            };
            entries.push((Name::new(declared.name), value));
        }
        Attr::dict(entries)
    }

    // ---- bodies ----

    pub fn module(&mut self) -> Module {
        let mut module = Module::new();
        if self.flip() {
            module.attrs = self.dict();
        }
        for i in 0..1 + self.below(3) {
            module.push(self.function(i));
        }
        if self.flip() {
            module.resources.insert(Name::new("blob"), Blob::new(self.some(9, |c| c.raw() as u8)));
        }
        module
    }
    fn function(&mut self, number: usize) -> Body {
        let inputs = self.some(3, |c| c.ty(2));
        let results = self.some(2, |c| c.ty(2));
        let func =
            rc_ir::builder::new_function("func.func", &format!("f{number}"), &inputs, &results, rc_ir::Loc::UNKNOWN);
        let mut body = func.body;
        let root = body.root();
        if self.flip() {
            body.set_attr(root, "sym_visibility", Attr::str("private"));
        }
        if self.flip() && !inputs.is_empty() {
            let attrs: Vec<Attr> = inputs.iter().map(|_| self.dict()).collect();
            if attrs.iter().any(|a| *a != Attr::empty_dict()) {
                body.set_attr(root, "arg_attrs", Attr::array(&attrs));
            }
        }
        self.name_values(&mut body, &func.args);
        let mut visible = func.args.clone();
        self.region(&mut body, func.region, Some(func.entry), &mut visible, 3);
        body
    }
    fn name_values(&mut self, body: &mut Body, values: &[Value]) {
        for &value in values {
            if self.flip() {
                body.set_value_name(value, self.name());
            }
        }
    }

    /// Fills a region with blocks of ops, whose terminators branch anywhere in it.
    fn region(&mut self, body: &mut Body, region: Region, entry: Option<Block>, visible: &mut Vec<Value>, depth: u32) {
        let mut blocks: Vec<Block> = entry.into_iter().collect();
        for _ in 0..self.below(3) + usize::from(entry.is_none()) {
            let args = self.some(2, |c| c.ty(1));
            let block = body.add_block(region, &args);
            let args: Vec<Value> = body.block_args(block).collect();
            self.name_values(body, &args);
            if self.flip() {
                body.set_block_label(block, self.name());
            }
            visible.extend(args);
            blocks.push(block);
        }
        for &block in &blocks {
            let before = visible.len();
            for _ in 0..self.below(5) {
                if self.is_over() {
                    break;
                }
                self.op(body, block, visible, depth);
            }
            self.terminator(body, block, &blocks[blocks.len().min(1)..], visible);
            // Values of a block are for itself and what is nested in it, and for those after the first.
            if self.flip() {
                visible.truncate(before);
            }
        }
    }
    fn some_values(&mut self, visible: &[Value], most: usize) -> Vec<Value> {
        if visible.is_empty() { Vec::new() } else { self.some(most, |c| c.pick(visible)) }
    }
    fn terminator(&mut self, body: &mut Body, block: Block, targets: &[Block], visible: &[Value]) {
        let operands = self.some_values(visible, 2);
        let target = (!targets.is_empty()).then(|| self.pick(targets));
        let mut b = Builder::at_end(body, block);
        match (self.below(3), target) {
            (0, Some(target)) => drop(b.op("rc.t.br").operands(&operands).successors(&[target]).build()),
            (1, Some(target)) => drop(b.op("foo.br").operands(&operands).successors(&[target, target]).build()),
            _ => drop(b.op("func.return").operands(&operands).build()),
        }
    }

    fn op(&mut self, body: &mut Body, block: Block, visible: &mut Vec<Value>, depth: u32) {
        let before = body.op_capacity();
        match self.below(10) {
            0 => self.unregistered(body, block, visible, depth),
            1 => {
                let attrs = self.declared(rc_ir::OpName::new("rc.t.kinds").def().unwrap());
                Builder::at_end(body, block).op("rc.t.kinds").attrs(attrs).build();
            }
            2 => {
                let kernel = self.some_values(visible, 1);
                let Some(&kernel) = kernel.first() else { return };
                let (grid, args) = (self.some_values(visible, 2), self.some_values(visible, 2));
                let stream = self.some_values(visible, 1);
                let results = self.some(3, |c| c.ty(2));
                let mut b = Builder::at_end(body, block);
                b.op("rc.t.launch")
                    .operand(kernel)
                    .operands(&grid)
                    .operands(&stream)
                    .operands(&args)
                    .results(&results)
                    .build();
            }
            3 if !visible.is_empty() => {
                let (value, to) = (self.pick(visible), self.pick(visible));
                let (indices, mask) = (self.some_values(visible, 3), self.some_values(visible, 1));
                let mut b = Builder::at_end(body, block);
                b.op("rc.t.store").operand(value).operand(to).operands(&indices).operands(&mask).build();
            }
            4 if !visible.is_empty() => {
                let ty = self.ty(2);
                let (from, indices) = (self.pick(visible), self.some_values(visible, 3));
                Builder::at_end(body, block).op("rc.t.load").operand(from).operands(&indices).result(ty).build();
            }
            5 if !visible.is_empty() && depth > 0 => self.loop_op(body, block, visible, depth),
            6 if depth > 0 => self.nest(body, block, visible, depth),
            7 if depth > 0 => {
                let op = Builder::at_end(body, block).op("rc.t.isolated").regions(self.below(3)).build();
                for region in body.regions(op) {
                    self.region(body, region, None, &mut Vec::new(), depth - 1);
                }
            }
            _ if !visible.is_empty() => {
                let value = self.pick(visible);
                Builder::at_end(body, block).op("rc.t.add").operands(&[value, value]).build();
            }
            _ => {}
        }
        if body.op_capacity() == before {
            return;
        }
        let op = body.last_op(block).unwrap();
        let results: Vec<Value> = body.results(op).collect();
        self.name_values(body, &results);
        visible.extend(results);
    }
    fn unregistered(&mut self, body: &mut Body, block: Block, visible: &mut Vec<Value>, depth: u32) {
        let mut state = OpState::new(self.pick(&["foo.bar", "foo", "a b", "t.add", "rc.nope.x"]), rc_ir::Loc::UNKNOWN);
        state.operands = self.some_values(visible, 3).into();
        state.results = self.some(3, |c| c.ty(2)).into();
        state.attrs = self.dict();
        state.props = if self.flip() { Some(self.dict()) } else { None };
        state.regions = if depth > 0 { self.below(3) } else { 0 };
        let op = body.create(state);
        body.append(block, op);
        for region in body.regions(op) {
            if self.flip() {
                let seen = visible.len();
                self.region(body, region, None, visible, depth - 1);
                visible.truncate(seen);
            }
        }
    }
    fn loop_op(&mut self, body: &mut Body, block: Block, visible: &mut Vec<Value>, depth: u32) {
        let (lower, inits) = (self.pick(visible), self.some_values(visible, 2));
        let types: Vec<Type> = inits.iter().map(|&v| body.ty(v)).collect();
        let leading = self.some(1, |c| c.ty(1));
        let mut b = Builder::at_end(body, block);
        let op = b.op("rc.t.for").operand(lower).operand(lower).operands(&inits).results(&types).regions(1).build();
        let region = body.regions(op)[0];
        let entry = body.add_block(region, &[leading, types].concat());
        let args: Vec<Value> = body.block_args(entry).collect();
        self.name_values(body, &args);
        let seen = visible.len();
        visible.extend(args);
        for _ in 0..self.below(3) {
            self.op(body, entry, visible, depth - 1);
        }
        let yielded = self.some_values(visible, 2);
        Builder::at_end(body, entry).op("rc.t.yield").operands(&yielded).build();
        visible.truncate(seen);
    }
    fn nest(&mut self, body: &mut Body, block: Block, visible: &mut Vec<Value>, depth: u32) {
        let inputs = self.some_values(visible, 3);
        let maps: Vec<Attr> = inputs.iter().map(|_| Attr::shape(&self.some(2, |c| c.dim(2)))).collect();
        let results = self.some(2, |c| c.ty(1));
        let mut b = Builder::at_end(body, block);
        let op =
            b.op("rc.t.nest").operands(&inputs).attr("maps", Attr::array(&maps)).results(&results).regions(1).build();
        let region = body.regions(op)[0];
        let seen = visible.len();
        self.region(body, region, None, visible, depth - 1);
        visible.truncate(seen);
    }
}

pub fn choices() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![0..12u32, any::<u32>()], 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn modules_round_trip(data in choices()) {
        register();
        check_round_trip(&Choices::new(data).module());
    }

    #[test]
    fn attributes_round_trip(data in prop::collection::vec(any::<u32>(), 0..60)) {
        register();
        let attr = Choices::new(data).attr(4);
        let text = attr.to_string();
        let again = rc_parser::parse_attr(&text).map_err(|d| TestCaseError::fail(d.render()))?;
        prop_assert_eq!(again, attr, "{}", text);
        let mut generic = String::new();
        rc_ir::print::types::write_attr(&mut generic, attr, rc_ir::print::Form::Generic).unwrap();
        let again = rc_parser::parse_attr(&generic).map_err(|d| TestCaseError::fail(d.render()))?;
        prop_assert_eq!(again, attr, "{}", generic);
    }

    #[test]
    fn types_round_trip(data in prop::collection::vec(any::<u32>(), 0..60)) {
        register();
        let ty = Choices::new(data).ty(4);
        let again = rc_parser::parse_type(&ty.to_string()).map_err(|d| TestCaseError::fail(d.render()))?;
        prop_assert_eq!(again, ty);
    }
}
