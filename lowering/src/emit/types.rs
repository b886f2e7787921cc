use melior::{
    Context,
    dialect::llvm,
    ir::{Type as MlirType, TypeLike, Value as MlirValue, r#type::IntegerType},
};

/// A value of the function under construction; it lives as long as its module is borrowed.
pub type Value<'m> = MlirValue<'m, 'm>;

/// A type of the `llvm` dialect.
pub type Type<'m> = MlirType<'m>;

/// Memory spaces, by LLVM's numbers. On the CPU everything is generic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Space {
    Generic = 0,
    /// Device memory.
    Global = 1,
    /// A block's shared memory.
    Shared = 3,
    Constant = 4,
    /// A thread's own memory.
    Local = 5,
    /// The shared memory of all blocks of a cluster.
    SharedCluster = 7,
}

/// The types that code needs all the time, made once.
#[derive(Clone, Copy)]
pub struct Types<'m> {
    context: &'m Context,
    pub i1: Type<'m>,
    pub i8: Type<'m>,
    pub i16: Type<'m>,
    pub i32: Type<'m>,
    pub i64: Type<'m>,
    pub f16: Type<'m>,
    pub bf16: Type<'m>,
    pub f32: Type<'m>,
    pub f64: Type<'m>,
    /// A generic pointer.
    pub ptr: Type<'m>,
    pub void: Type<'m>,
}

impl<'m> Types<'m> {
    pub(crate) fn new(context: &'m Context) -> Self {
        let integer = |width| IntegerType::new(context, width).into();
        Self {
            context,
            i1: integer(1),
            i8: integer(8),
            i16: integer(16),
            i32: integer(32),
            i64: integer(64),
            f16: Type::float16(context),
            bf16: Type::bfloat16(context),
            f32: Type::float32(context),
            f64: Type::float64(context),
            ptr: llvm::r#type::pointer(context, 0),
            void: llvm::r#type::void(context),
        }
    }

    /// A pointer into a memory space.
    pub fn ptr_in(&self, space: Space) -> Type<'m> {
        llvm::r#type::pointer(self.context, space as u32)
    }

    /// A fixed vector of `lanes` elements.
    pub fn vector(&self, lanes: usize, element: Type<'m>) -> Type<'m> {
        Type::vector(&[lanes as u64], element)
    }

    /// An array in memory.
    pub fn array(&self, length: u32, element: Type<'m>) -> Type<'m> {
        llvm::r#type::array(element, length)
    }

    /// A structure, as instructions with several results return.
    pub fn structure(&self, fields: &[Type<'m>]) -> Type<'m> {
        llvm::r#type::r#struct(self.context, fields, false)
    }
}

/// How many lanes a vector type has; none for a scalar.
pub fn lanes(r#type: Type<'_>) -> Option<usize> {
    // SAFETY: a type lives as long as its context; only a vector is asked for its size.
    unsafe {
        mlir_sys::mlirTypeIsAVector(r#type.to_raw())
            .then(|| mlir_sys::mlirShapedTypeGetDimSize(r#type.to_raw(), 0) as usize)
    }
}

/// A vector's element type, or the scalar type itself.
pub fn element<'m>(r#type: Type<'m>) -> Type<'m> {
    match lanes(r#type) {
        // SAFETY: it is a vector, and its element type lives as long as it does.
        Some(_) => unsafe { Type::from_raw(mlir_sys::mlirShapedTypeGetElementType(r#type.to_raw())) },
        None => r#type,
    }
}

/// `of`, as a scalar or as a vector with as many lanes as `shape` has.
pub fn same_shape<'m>(shape: Type<'m>, of: Type<'m>) -> Type<'m> {
    match lanes(shape) {
        Some(lanes) => Type::vector(&[lanes as u64], of),
        None => of,
    }
}

/// What LLVM may assume of floating-point results. The default is nothing: rounding is what the program wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FastMath {
    /// A product and a sum may become one fused multiply-add.
    pub contract: bool,
    /// Sums and products may be reordered.
    pub reassoc: bool,
    /// No NaN occurs.
    pub nnan: bool,
    /// No infinity occurs.
    pub ninf: bool,
    /// The sign of zero does not matter.
    pub nsz: bool,
    /// A division may become a product with the reciprocal.
    pub arcp: bool,
    /// Functions may be approximated.
    pub afn: bool,
}

impl FastMath {
    /// Inside `reduce`, `dot` and `conv`: contraction and reordering.
    pub const REDUCE: Self =
        Self { contract: true, reassoc: true, nnan: false, ninf: false, nsz: true, arcp: false, afn: false };

    pub(crate) fn attribute_text(self) -> Option<String> {
        let flags = [
            (self.nnan, "nnan"),
            (self.ninf, "ninf"),
            (self.nsz, "nsz"),
            (self.arcp, "arcp"),
            (self.contract, "contract"),
            (self.afn, "afn"),
            (self.reassoc, "reassoc"),
        ];
        let names: Vec<_> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        (!names.is_empty()).then(|| format!("#llvm.fastmath<{}>", names.join(", ")))
    }
}

/// Integer comparisons, by MLIR's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i64)]
pub enum ICmp {
    Eq = 0,
    Ne = 1,
    Slt = 2,
    Sle = 3,
    Sgt = 4,
    Sge = 5,
    Ult = 6,
    Ule = 7,
    Ugt = 8,
    Uge = 9,
}

/// Float comparisons, by MLIR's numbers; `O…` is false and `U…` is true where an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i64)]
pub enum FCmp {
    Oeq = 1,
    Ogt = 2,
    Oge = 3,
    Olt = 4,
    Ole = 5,
    One = 6,
    Ord = 7,
    Ueq = 8,
    Ugt = 9,
    Uge = 10,
    Ult = 11,
    Ule = 12,
    Une = 13,
    Uno = 14,
}
