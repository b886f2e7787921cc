use super::{Builder, Space, Type, Types};
use crate::backend::{Error, Processor, Session};
use melior::{
    Context,
    dialect::llvm,
    ir::{
        Attribute, Block, BlockLike, Identifier, Location, Module, Region, RegionLike,
        attribute::{
            ArrayAttribute, DenseElementsAttribute, DenseI32ArrayAttribute, IntegerAttribute, StringAttribute,
            TypeAttribute,
        },
        operation::{OperationBuilder, OperationLike, OperationMutLike},
        r#type::IntegerType,
    },
};

/// A module of functions and globals for one target.
pub struct ModuleBuilder<'c> {
    context: &'c Context,
    module: Module<'c>,
}

/// A function to build.
pub struct Function<'a, 'm> {
    pub name: &'a str,
    pub parameters: &'a [Parameter<'m>],
    /// `None` where it returns nothing.
    pub result: Option<Type<'m>>,
    /// Whether code outside of the object calls it. Others are inlined or dropped where possible.
    pub public: bool,
    /// Launch bounds, where it is a GPU kernel.
    pub kernel: Option<Kernel>,
}

impl<'a, 'm> Function<'a, 'm> {
    /// A public function that returns nothing.
    pub fn new(name: &'a str, parameters: &'a [Parameter<'m>]) -> Self {
        Self { name, parameters, result: None, public: true, kernel: None }
    }
}

/// A function's parameter and what is known of it.
#[derive(Clone, Copy)]
pub struct Parameter<'m> {
    pub r#type: Type<'m>,
    /// No other pointer that the function uses reaches the same memory.
    pub noalias: bool,
    /// The function only reads through it.
    pub readonly: bool,
    /// The pointer's alignment in bytes; 0 where unknown.
    pub align: u32,
    /// The pointer is to this many bytes that are passed by value: a tensor map or addresses, in a kernel.
    pub by_value_bytes: Option<u32>,
}

impl<'m> Parameter<'m> {
    /// A parameter of which nothing is known.
    pub fn new(r#type: Type<'m>) -> Self {
        Self { r#type, noalias: false, readonly: false, align: 0, by_value_bytes: None }
    }

    /// A 128-byte tensor map passed by value to a kernel, as a `__grid_constant__`.
    pub fn tensor_map(types: &Types<'m>) -> Self {
        Self { readonly: true, align: 64, by_value_bytes: Some(128), ..Self::new(types.ptr) }
    }

    /// So many addresses passed by value to a kernel.
    pub fn table(types: &Types<'m>, addresses: usize) -> Self {
        Self { readonly: true, align: 8, by_value_bytes: Some(8 * addresses as u32), ..Self::new(types.ptr) }
    }
}

/// Launch bounds of a GPU kernel, in threads, blocks and registers; 0 leaves one open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Exactly so many threads a block (`.reqntid`).
    pub threads: [u32; 3],
    /// At least so many blocks on a multiprocessor (`.minnctapersm`).
    pub min_blocks: u32,
    /// At most so many registers a thread (`.maxnreg`).
    pub max_registers: u32,
    /// Blocks in a cluster (`.reqnctapercluster`).
    pub cluster: [u32; 3],
}

impl<'c> ModuleBuilder<'c> {
    /// An empty module. It names its target, so that a dump can be compiled by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Target`] where LLVM does not know the target.
    pub fn new(session: &'c Session, target: &Processor) -> Result<Self, Error> {
        let context = session.context();
        let mut module = Module::new(Location::unknown(context));
        let layout = StringAttribute::new(context, &target.data_layout()?);
        let triple = StringAttribute::new(context, target.triple());
        let mut operation = module.as_operation_mut();
        operation.set_attribute("llvm.data_layout", layout.into());
        operation.set_attribute("llvm.target_triple", triple.into());
        Ok(Self { context, module })
    }

    /// Types in common use.
    pub fn types(&self) -> Types<'_> {
        Types::new(self.context)
    }

    /// The module, built.
    pub fn finish(self) -> Module<'c> {
        self.module
    }

    /// Starts a function; the builder stands at its entry.
    pub fn function<'m>(&'m self, function: &Function<'_, 'm>) -> Builder<'m> {
        let context = self.context;
        let location = Location::unknown(context);
        let inputs: Vec<Type<'m>> = function.parameters.iter().map(|parameter| parameter.r#type).collect();
        let result = function.result.unwrap_or(llvm::r#type::void(context));
        let region = Region::new();
        let arguments: Vec<_> = inputs.iter().map(|&input| (input, location)).collect();
        region.append_block(Block::new(&arguments));
        let mut attributes = vec![
            self.named("sym_name", StringAttribute::new(context, function.name).into()),
            self.named("function_type", TypeAttribute::new(llvm::r#type::function(result, &inputs, false)).into()),
            self.named("linkage", self.linkage(if function.public { "external" } else { "internal" })),
            self.named("arg_attrs", self.parameter_attributes(function.parameters)),
        ];
        if function.public {
            // Defined here for good, so that position-independent code does not go through a global offset table.
            attributes.push(self.named("dso_local", Attribute::unit(context)));
        }
        if let Some(kernel) = function.kernel {
            attributes.extend(self.kernel_attributes(kernel));
        }
        let operation = OperationBuilder::new("llvm.func", location)
            .add_attributes(&attributes)
            .add_regions([region])
            .build()
            .expect("llvm.func is registered");
        let operation = self.module.body().append_operation(operation);
        let region = operation.region(0).expect("a function has a body");
        let entry = region.first_block().expect("a body has an entry");
        Builder::new(context, region, entry)
    }

    /// Declares a function that another module defines. Object code that calls one is refused; see
    /// [`Builder::call_pointer`].
    pub fn declare<'m>(&'m self, name: &str, parameters: &[Type<'m>], result: Option<Type<'m>>) {
        let result = result.unwrap_or(llvm::r#type::void(self.context));
        let r#type = llvm::r#type::function(result, parameters, false);
        self.append(
            "llvm.func",
            &[
                self.named("sym_name", StringAttribute::new(self.context, name).into()),
                self.named("function_type", TypeAttribute::new(r#type).into()),
                self.named("linkage", self.linkage("external")),
            ],
        );
    }

    /// A block's shared memory of a fixed size, uninitialized.
    pub fn shared(&self, name: &str, bytes: u32, align: u32) {
        self.shared_global(name, bytes, align, "internal");
    }

    /// A block's dynamic shared memory, whose size the launch gives.
    pub fn dynamic_shared(&self, name: &str, align: u32) {
        self.shared_global(name, 0, align, "external");
    }

    fn shared_global(&self, name: &str, bytes: u32, align: u32, linkage: &str) {
        let mut attributes = vec![self.named("linkage", self.linkage(linkage))];
        attributes.extend(self.global_attributes(name, bytes, align, Space::Shared));
        self.append("llvm.mlir.global", &attributes);
    }

    /// Constant bytes in read-only memory, for the CPU or in the GPU's global memory.
    pub fn constant_bytes(&self, name: &str, bytes: &[u8], align: u32, space: Space) {
        let signed: Vec<i8> = bytes.iter().map(|&byte| byte as i8).collect();
        let i8 = IntegerType::new(self.context, 8).into();
        let shape = melior::ir::r#type::RankedTensorType::new(&[bytes.len() as u64], i8, None).into();
        let mut attributes = vec![
            self.named("linkage", self.linkage("internal")),
            self.named("constant", Attribute::unit(self.context)),
            self.named("dso_local", Attribute::unit(self.context)),
            self.named("value", DenseElementsAttribute::i8_values(shape, &signed).into()),
        ];
        attributes.extend(self.global_attributes(name, bytes.len() as u32, align, space));
        self.append("llvm.mlir.global", &attributes);
    }

    fn global_attributes(
        &self,
        name: &str,
        bytes: u32,
        align: u32,
        space: Space,
    ) -> [(Identifier<'_>, Attribute<'_>); 4] {
        let i8 = IntegerType::new(self.context, 8).into();
        [
            self.named("sym_name", StringAttribute::new(self.context, name).into()),
            self.named("global_type", TypeAttribute::new(llvm::r#type::array(i8, bytes)).into()),
            self.named("alignment", self.integer(64, align.into())),
            self.named("addr_space", self.integer(32, space as i64)),
        ]
    }

    fn append(&self, name: &str, attributes: &[(Identifier<'_>, Attribute<'_>)]) {
        let operation = OperationBuilder::new(name, Location::unknown(self.context))
            .add_attributes(attributes)
            .add_regions([Region::new()])
            .build()
            .expect("llvm.func and llvm.mlir.global are registered");
        self.module.body().append_operation(operation);
    }

    fn parameter_attributes<'m>(&'m self, parameters: &[Parameter<'m>]) -> Attribute<'m> {
        let dictionaries: Vec<Attribute> = parameters.iter().map(|parameter| self.parameter(parameter)).collect();
        ArrayAttribute::new(self.context, &dictionaries).into()
    }

    fn parameter<'m>(&'m self, parameter: &Parameter<'m>) -> Attribute<'m> {
        let unit = Attribute::unit(self.context);
        let mut entries = Vec::new();
        if parameter.noalias {
            entries.push(self.named("llvm.noalias", unit));
        }
        if parameter.readonly {
            entries.push(self.named("llvm.readonly", unit));
        }
        if parameter.align > 0 {
            entries.push(self.named("llvm.align", self.integer(64, parameter.align.into())));
        }
        if let Some(bytes) = parameter.by_value_bytes {
            let i8 = IntegerType::new(self.context, 8).into();
            entries.push(self.named("llvm.byval", TypeAttribute::new(llvm::r#type::array(i8, bytes)).into()));
            entries.push(self.named("nvvm.grid_constant", unit));
        }
        melior::ir::attribute::DictionaryAttribute::new(self.context, &entries).into()
    }

    fn kernel_attributes(&self, kernel: Kernel) -> Vec<(Identifier<'_>, Attribute<'_>)> {
        let extents = |extents: [u32; 3]| DenseI32ArrayAttribute::new(self.context, &extents.map(|n| n as i32)).into();
        let mut attributes = vec![self.named("nvvm.kernel", Attribute::unit(self.context))];
        if kernel.threads[0] > 0 {
            attributes.push(self.named("nvvm.reqntid", extents(kernel.threads)));
        }
        if kernel.cluster[0] > 0 {
            attributes.push(self.named("nvvm.cluster_dim", extents(kernel.cluster)));
        }
        if kernel.min_blocks > 0 {
            attributes.push(self.named("nvvm.minctasm", self.integer(32, kernel.min_blocks.into())));
        }
        if kernel.max_registers > 0 {
            attributes.push(self.named("nvvm.maxnreg", self.integer(32, kernel.max_registers.into())));
        }
        attributes
    }

    fn linkage(&self, name: &str) -> Attribute<'_> {
        Attribute::parse(self.context, &format!("#llvm.linkage<{name}>")).expect("a linkage of the llvm dialect")
    }

    fn integer(&self, width: u32, value: i64) -> Attribute<'_> {
        IntegerAttribute::new(IntegerType::new(self.context, width).into(), value).into()
    }

    fn named<'m>(&'m self, name: &str, value: Attribute<'m>) -> (Identifier<'m>, Attribute<'m>) {
        (Identifier::new(self.context, name), value)
    }
}
