use super::{FastMath, Space, Type, Types, Value, lanes, ptx::Ptx};
use melior::{
    Context,
    dialect::llvm,
    ir::{
        Attribute, BlockLike, BlockRef, Identifier, Location, RegionLike, RegionRef, TypeLike, ValueLike,
        attribute::{
            DenseElementsAttribute, DenseI32ArrayAttribute, FlatSymbolRefAttribute, FloatAttribute, IntegerAttribute,
            StringAttribute,
        },
        operation::{OperationBuilder, OperationRef},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ffi::c_void,
};

/// A basic block of the function under construction.
pub type Block<'m> = BlockRef<'m, 'm>;

/// Appends operations to a function.
pub struct Builder<'m> {
    context: &'m Context,
    /// Types in common use.
    pub ty: Types<'m>,
    region: RegionRef<'m, 'm>,
    entry: Block<'m>,
    block: Cell<Block<'m>>,
    location: Cell<Location<'m>>,
    fast_math: Cell<Option<Attribute<'m>>>,
    // Looked up only, never iterated over.
    constants: RefCell<HashMap<(*const c_void, u64), Value<'m>>>,
}

impl<'m> Builder<'m> {
    pub(super) fn new(context: &'m Context, region: RegionRef<'m, 'm>, entry: Block<'m>) -> Self {
        Self {
            context,
            ty: Types::new(context),
            region,
            entry,
            block: Cell::new(entry),
            location: Cell::new(Location::unknown(context)),
            fast_math: Cell::new(None),
            constants: RefCell::default(),
        }
    }

    /// The function's `index`-th argument. Panics where there is none.
    pub fn arg(&self, index: usize) -> Value<'m> {
        self.block_arg(self.entry, index)
    }

    /// A block's `index`-th argument. Panics where there is none.
    pub fn block_arg(&self, block: Block<'m>, index: usize) -> Value<'m> {
        block.argument(index).expect("a block argument within bounds").into()
    }

    /// The source location that the following operations get.
    pub fn set_location(&self, location: Location<'m>) {
        self.location.set(location);
    }

    /// A source location in a file.
    pub fn file_location(&self, file: &str, line: usize, column: usize) -> Location<'m> {
        Location::new(self.context, file, line, column)
    }

    /// What the float operations made by `build` allow LLVM to assume. Nothing outside of it.
    pub fn with_fast_math<R>(&self, flags: FastMath, build: impl FnOnce() -> R) -> R {
        let attribute = flags.attribute_text().map(|text| self.parse_attribute(&text));
        let outer = self.fast_math.replace(attribute);
        let result = build();
        self.fast_math.set(outer);
        result
    }

    /// The GPU's own instructions.
    pub fn ptx(&self) -> Ptx<'_, 'm> {
        Ptx::new(self)
    }

    // ---- Blocks

    /// A new block at the end of the function, with arguments of these types. The insertion point stays.
    pub fn new_block(&self, arguments: &[Type<'m>]) -> Block<'m> {
        let location = self.location.get();
        let arguments: Vec<_> = arguments.iter().map(|&r#type| (r#type, location)).collect();
        self.region.append_block(melior::ir::Block::new(&arguments))
    }

    /// The block that operations are appended to.
    pub fn block(&self) -> Block<'m> {
        self.block.get()
    }

    /// Appends the following operations to `block`.
    pub fn position_at_end(&self, block: Block<'m>) {
        self.block.set(block);
    }

    // ---- Constants; each is made once, at the function's entry.

    /// An integer constant of a scalar type, or of every lane of a vector type.
    pub fn int(&self, r#type: Type<'m>, value: i64) -> Value<'m> {
        self.constant(r#type, value as u64, |element| IntegerAttribute::new(element, value).into())
    }

    pub fn i1(&self, value: bool) -> Value<'m> {
        self.int(self.ty.i1, value.into())
    }

    pub fn i32(&self, value: i32) -> Value<'m> {
        self.int(self.ty.i32, value.into())
    }

    pub fn i64(&self, value: i64) -> Value<'m> {
        self.int(self.ty.i64, value)
    }

    /// A float constant of a scalar type, or of every lane of a vector type, rounded to the type.
    pub fn float(&self, r#type: Type<'m>, value: f64) -> Value<'m> {
        let context = self.context;
        self.constant(r#type, value.to_bits(), |element| FloatAttribute::new(context, element, value).into())
    }

    pub fn f32(&self, value: f32) -> Value<'m> {
        self.float(self.ty.f32, value.into())
    }

    /// A value of which nothing is known, as a start for inserting elements.
    pub fn poison(&self, r#type: Type<'m>) -> Value<'m> {
        self.op1("llvm.mlir.poison", &[], r#type, &[])
    }

    /// Zero of any type: null for pointers.
    pub fn zero(&self, r#type: Type<'m>) -> Value<'m> {
        self.op1("llvm.mlir.zero", &[], r#type, &[])
    }

    fn constant(&self, r#type: Type<'m>, bits: u64, attribute: impl FnOnce(Type<'m>) -> Attribute<'m>) -> Value<'m> {
        let key = (r#type.to_raw().ptr, bits);
        if let Some(&value) = self.constants.borrow().get(&key) {
            return value;
        }
        let scalar = attribute(super::element(r#type));
        let value = match lanes(r#type) {
            Some(_) => match DenseElementsAttribute::new(r#type, &[scalar]) {
                Ok(dense) => dense.into(),
                Err(_) => scalar,
            },
            None => scalar,
        };
        let operation = OperationBuilder::new("llvm.mlir.constant", self.location.get())
            .add_attributes(&[(self.name("value"), value)])
            .add_results(&[r#type])
            .build()
            .expect("llvm.mlir.constant is registered");
        let result = first_result(self.entry.insert_operation(0, operation));
        self.constants.borrow_mut().insert(key, result);
        result
    }

    // ---- Calls

    /// Calls a function of the module by name; `result` is `None` for one that returns nothing.
    pub fn call(&self, callee: &str, arguments: &[Value<'m>], result: Option<Type<'m>>) -> Option<Value<'m>> {
        let callee = FlatSymbolRefAttribute::new(self.context, callee).into();
        self.call_op("llvm.call", &[("callee", callee)], arguments, result)
    }

    /// Calls through a pointer, such as an entry of the runtime's table.
    pub fn call_pointer(
        &self,
        callee: Value<'m>,
        arguments: &[Value<'m>],
        result: Option<Type<'m>>,
    ) -> Option<Value<'m>> {
        let operands: Vec<_> = std::iter::once(callee).chain(arguments.iter().copied()).collect();
        self.call_op("llvm.call", &[], &operands, result)
    }

    /// Calls an LLVM intrinsic by name, such as `llvm.nvvm.shfl.sync.bfly.i32`; the suffix for overloaded types may be
    /// left out.
    pub fn intrinsic(&self, name: &str, arguments: &[Value<'m>], result: Option<Type<'m>>) -> Option<Value<'m>> {
        let name = StringAttribute::new(self.context, name).into();
        self.call_op("llvm.call_intrinsic", &[("intrin", name)], arguments, result)
    }

    /// [`Builder::intrinsic`] with a result.
    pub fn intrinsic1(&self, name: &str, arguments: &[Value<'m>], result: Type<'m>) -> Value<'m> {
        let call = self.intrinsic(name, arguments, Some(result));
        call.expect("an intrinsic that was given a result type has a result")
    }

    fn call_op(
        &self,
        op: &str,
        attributes: &[(&str, Attribute<'m>)],
        operands: &[Value<'m>],
        result: Option<Type<'m>>,
    ) -> Option<Value<'m>> {
        let mut all = attributes.to_vec();
        all.push(("operandSegmentSizes", self.i32_array(&[operands.len() as i32, 0])));
        all.push(("op_bundle_sizes", self.i32_array(&[])));
        let operation = self.op(op, operands, result.as_slice(), &all, &[]);
        result.map(|_| first_result(operation))
    }

    /// One piece of inline assembly in LLVM's syntax: `$0` stands for the first result or operand, constraints as LLVM
    /// writes them. Has as many values as `results`. Pure where `side_effects` is false: then it may be merged, moved
    /// or dropped.
    pub fn inline_asm(
        &self,
        assembly: &str,
        constraints: &str,
        operands: &[Value<'m>],
        results: &[Type<'m>],
        side_effects: bool,
    ) -> Vec<Value<'m>> {
        let mut attributes = vec![
            ("asm_string", StringAttribute::new(self.context, assembly).into()),
            ("constraints", StringAttribute::new(self.context, constraints).into()),
        ];
        if side_effects {
            attributes.push(("has_side_effects", Attribute::unit(self.context)));
        }
        match results {
            [] => {
                self.op("llvm.inline_asm", operands, &[], &attributes, &[]);
                Vec::new()
            }
            &[result] => vec![self.op1("llvm.inline_asm", operands, result, &attributes)],
            many => {
                let all = self.op1("llvm.inline_asm", operands, self.ty.structure(many), &attributes);
                self.fields(all, many)
            }
        }
    }

    // ---- Structures

    /// The fields of a structure, whose types are `types`.
    pub fn fields(&self, structure: Value<'m>, types: &[Type<'m>]) -> Vec<Value<'m>> {
        types.iter().enumerate().map(|(index, &r#type)| self.extract_value(structure, index, r#type)).collect()
    }

    /// One field of a structure, or one element of an array, of type `type`.
    pub fn extract_value(&self, aggregate: Value<'m>, index: usize, r#type: Type<'m>) -> Value<'m> {
        let position = melior::ir::attribute::DenseI64ArrayAttribute::new(self.context, &[index as i64]).into();
        self.op1("llvm.extractvalue", &[aggregate], r#type, &[("position", position)])
    }

    /// The structure with one field replaced.
    pub fn insert_value(&self, aggregate: Value<'m>, value: Value<'m>, index: usize) -> Value<'m> {
        let position = melior::ir::attribute::DenseI64ArrayAttribute::new(self.context, &[index as i64]).into();
        self.op1("llvm.insertvalue", &[aggregate, value], aggregate.r#type(), &[("position", position)])
    }

    // ---- Operations

    /// Appends any operation of the `llvm` or `nvvm` dialect.
    ///
    /// Panics where MLIR does not know the operation or an attribute has the wrong kind: both are errors of the caller.
    pub fn op(
        &self,
        name: &str,
        operands: &[Value<'m>],
        results: &[Type<'m>],
        attributes: &[(&str, Attribute<'m>)],
        successors: &[Block<'m>],
    ) -> OperationRef<'m, 'm> {
        let named: Vec<_> = attributes.iter().map(|(name, value)| (self.name(name), *value)).collect();
        let blocks: Vec<_> = successors.iter().map(|block| &**block).collect();
        let operation = OperationBuilder::new(name, self.location.get())
            .add_operands(operands)
            .add_results(results)
            .add_attributes(&named)
            .add_successors(&blocks)
            .build();
        let Ok(operation) = operation else { panic!("{name} does not take these attributes: {attributes:?}") };
        self.block.get().append_operation(operation)
    }

    /// [`Builder::op`] for an operation with one result and no successors.
    pub fn op1(
        &self,
        name: &str,
        operands: &[Value<'m>],
        result: Type<'m>,
        attributes: &[(&str, Attribute<'m>)],
    ) -> Value<'m> {
        first_result(self.op(name, operands, &[result], attributes, &[]))
    }

    /// An operation whose result has the first operand's type, with the fast-math flags in force.
    pub(super) fn float_op(&self, name: &str, operands: &[Value<'m>]) -> Value<'m> {
        self.op1(name, operands, operands[0].r#type(), self.fast_math_attributes().as_slice())
    }

    pub(super) fn fast_math_attributes(&self) -> Option<(&'static str, Attribute<'m>)> {
        self.fast_math.get().map(|flags| ("fastmathFlags", flags))
    }

    // ---- Attributes and pointers

    /// An attribute from MLIR's text. Panics where it does not parse, which is an error of the caller.
    pub fn parse_attribute(&self, text: &str) -> Attribute<'m> {
        Attribute::parse(self.context, text).unwrap_or_else(|| panic!("not an MLIR attribute: {text}"))
    }

    pub(super) fn i64_attribute(&self, value: i64) -> Attribute<'m> {
        IntegerAttribute::new(self.ty.i64, value).into()
    }

    pub(super) fn i32_attribute(&self, value: i32) -> Attribute<'m> {
        IntegerAttribute::new(self.ty.i32, value.into()).into()
    }

    pub(super) fn i32_array(&self, values: &[i32]) -> Attribute<'m> {
        DenseI32ArrayAttribute::new(self.context, values).into()
    }

    pub(super) fn unit_attribute(&self) -> Attribute<'m> {
        Attribute::unit(self.context)
    }

    pub(super) fn string_attribute(&self, text: &str) -> Attribute<'m> {
        StringAttribute::new(self.context, text).into()
    }

    /// The address of a global, such as a block's shared memory.
    pub fn address_of(&self, global: &str, space: Space) -> Value<'m> {
        let name = FlatSymbolRefAttribute::new(self.context, global).into();
        let pointer = llvm::r#type::pointer(self.context, space as u32);
        self.op1("llvm.mlir.addressof", &[], pointer, &[("global_name", name)])
    }

    fn name(&self, name: &str) -> Identifier<'m> {
        Identifier::new(self.context, name)
    }
}

pub(super) fn first_result<'m>(operation: OperationRef<'m, 'm>) -> Value<'m> {
    operation.result(0).expect("an operation built with a result type has a result").into()
}
