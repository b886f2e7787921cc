# Made from the declarations by `make docs`; edit those.
from collections.abc import Mapping, Sequence
from typing import Literal

from rc.function import Function, Value
from rc.types import Shape, Size, TensorType

def abs(x: Value) -> Value:
    """Elementwise absolute value."""
def acos(x: Value) -> Value:
    """Elementwise arc cosine, in radians."""
def acosh(x: Value) -> Value:
    """Elementwise inverse hyperbolic cosine."""
def add(lhs: Value, rhs: Value) -> Value:
    """Elementwise sum."""
def and_(lhs: Value, rhs: Value) -> Value:
    """Elementwise bitwise and; of i1, the logical one."""
def asin(x: Value) -> Value:
    """Elementwise arc sine, in radians."""
def asinh(x: Value) -> Value:
    """Elementwise inverse hyperbolic sine."""
def assume_shape(x: Value, *, out: TensorType) -> Value:
    """The operand, with a shape that is known to be its own."""
def atan(x: Value) -> Value:
    """Elementwise arc tangent, in radians."""
def atan2(lhs: Value, rhs: Value) -> Value:
    """Elementwise angle in radians of the point (rhs, lhs)."""
def atanh(x: Value) -> Value:
    """Elementwise inverse hyperbolic tangent."""
def attention(q: Value, k: Value, v: Value, mask: Sequence[Value], *, causal: bool = False, sums: bool = False, scale: float | None = None) -> list[Value]:
    """softmax(q · kᵀ · scale + mask) · v."""
def attention_backward(q: Value, k: Value, v: Value, grad: Value, sums: Value, delta: Value, mask: Value | None = None, *, causal: bool = False, scale: float | None = None) -> list[Value]:
    """The gradients of attention's q, k and v."""
def bitcast(x: Value, *, out: TensorType) -> Value:
    """Elementwise reinterpretation of the bits as the element type of the result."""
def broadcast(x: Value, *, dims: Sequence[int], out: TensorType) -> Value:
    """Repeats the operand along dimensions of the result."""
def call(args: Sequence[Value], *, callee: str, bind: Mapping[str, Size] | None = None, out: Sequence[TensorType]) -> list[Value]:
    """Calls a function whose sizes are symbolic."""
def ceil(x: Value) -> Value:
    """Elementwise least integer that is not below."""
def clamp(x: Value, lo: Value, hi: Value) -> Value:
    """Elementwise min(max(x, lo), hi)."""
def compare(lhs: Value, rhs: Value, *, kind: Literal["eq", "ne", "lt", "le", "gt", "ge"]) -> Value:
    """Elementwise comparison, giving i1."""
def concat(xs: Sequence[Value], *, dim: int) -> Value:
    """Joins tensors along a dimension."""
def convert(x: Value, *, exact: bool | None = None, out: TensorType) -> Value:
    """Elementwise conversion to the element type of the result."""
def cos(x: Value) -> Value:
    """Elementwise cosine of radians."""
def cosh(x: Value) -> Value:
    """Elementwise hyperbolic cosine."""
def digamma(x: Value) -> Value:
    """Elementwise logarithmic derivative of the gamma function."""
def dim(x: Value, *, dim: int) -> Value:
    """The size of a dimension, as a value."""
def div(lhs: Value, rhs: Value) -> Value:
    """Elementwise quotient."""
def dot(lhs: Value, rhs: Value, *, lhs_batch: Sequence[int] | None = None, rhs_batch: Sequence[int] | None = None, lhs_contract: Sequence[int], rhs_contract: Sequence[int], acc: str | None = None, precision: Literal["tf32"] | None = None, exact_sums: bool | None = None, out: TensorType) -> Value:
    """Sums products over contracted dimensions: a matrix product in general form."""
def erf(x: Value) -> Value:
    """Elementwise error function."""
def erfc(x: Value) -> Value:
    """Elementwise complementary error function: 1 - erf(x), accurate where that is small."""
def erfinv(x: Value) -> Value:
    """Elementwise inverse of the error function."""
def exp(x: Value) -> Value:
    """Elementwise natural exponential."""
def exp2(x: Value, *, flush: bool | None = None) -> Value:
    """Elementwise power of two."""
def expm1(x: Value) -> Value:
    """Elementwise exp(x) - 1, accurate near zero."""
def extent(function: Function, *, expr: Shape) -> Value:
    """The value of an expression over the function's symbols."""
def floor(x: Value) -> Value:
    """Elementwise greatest integer that is not above."""
def fma(a: Value, b: Value, c: Value) -> Value:
    """Elementwise a * b + c with one rounding."""
def for_(init: Sequence[Value], slices: Sequence[Value], args: Sequence[Value], *, body: str, times: Shape, bind: Mapping[str, Size] | None = None, out: Sequence[TensorType]) -> list[Value]:
    """Values that a function changes a number of times, reading slices and giving slices."""
def foreign(args: Sequence[Value], *, function: str, config: str = "", sizes: Shape | None = None, effects: Literal["none", "ordered"] = "ordered", updates: Sequence[int] | None = None, out: Sequence[TensorType]) -> list[Value]:
    """What a function of the process gives that runs the program."""
def gather(table: Value, indices: Value, *, axis: int, batch: int = 0) -> Value:
    """Slices of a table, chosen by an array of indices."""
def if_(condition: Value, args: Sequence[Value], *, then: str, else_: str, bind: Mapping[str, Size] | None = None, out: Sequence[TensorType]) -> list[Value]:
    """The results of one of two functions."""
def iota(function: Function, *, dim: int, out: TensorType) -> Value:
    """Each element is its index along one dimension."""
def is_finite(x: Value) -> Value:
    """Elementwise: neither infinite nor NaN."""
def is_nan(x: Value) -> Value:
    """Elementwise: NaN."""
def lgamma(x: Value) -> Value:
    """Elementwise logarithm of the magnitude of the gamma function."""
def log(x: Value) -> Value:
    """Elementwise natural logarithm."""
def log10(x: Value) -> Value:
    """Elementwise logarithm to base 10."""
def log1p(x: Value) -> Value:
    """Elementwise log(1 + x), accurate near zero."""
def log2(x: Value) -> Value:
    """Elementwise logarithm to base 2."""
def logistic(x: Value) -> Value:
    """Elementwise logistic function (sigmoid): 1 / (1 + exp(-x))."""
def max(lhs: Value, rhs: Value) -> Value:
    """Elementwise maximum."""
def min(lhs: Value, rhs: Value) -> Value:
    """Elementwise minimum."""
def mul(lhs: Value, rhs: Value) -> Value:
    """Elementwise product."""
def neg(x: Value) -> Value:
    """Elementwise negation."""
def not_(x: Value) -> Value:
    """Elementwise complement of all bits; of i1, the logical not."""
def or_(lhs: Value, rhs: Value) -> Value:
    """Elementwise bitwise or; of i1, the logical one."""
def pad(x: Value, value: Value, *, low: Shape, high: Shape) -> Value:
    """Adds elements before and after, along each dimension."""
def philox(key: Value, counter: Value) -> Value:
    """Elementwise: 64 random bits that a key and a counter determine."""
def philox_word(key: Value, counter: Value) -> Value:
    """Elementwise: 32 random bits that a key and a counter determine; four counters share their computation."""
def pow(lhs: Value, rhs: Value) -> Value:
    """Elementwise power."""
def reduce(x: Value, *, dims: Sequence[int], kind: Literal["add", "mul", "max", "min", "and", "or", "argmax", "argmin"], acc: str | None = None) -> Value:
    """Combines the elements along dimensions into one."""
def rem(lhs: Value, rhs: Value) -> Value:
    """Elementwise remainder of the truncated quotient, with the sign of the dividend."""
def reshape(x: Value, *, out: TensorType) -> Value:
    """The same elements in row-major order, in another shape."""
def reverse(x: Value, *, dims: Sequence[int]) -> Value:
    """Reverses the order of elements along dimensions."""
def round(x: Value) -> Value:
    """Elementwise nearest integer, ties to even."""
def rsqrt(x: Value) -> Value:
    """Elementwise reciprocal square root."""
def scan(x: Value, *, dim: int, kind: Literal["add", "mul", "max", "min"], acc: str | None = None, reverse: bool = False, exclusive: bool = False) -> Value:
    """Combines each element with all before it along a dimension."""
def scatter(x: Value, indices: Value, updates: Value, order: Value | None = None, starts: Value | None = None, *, axis: int, kind: Literal["set", "add", "mul", "max", "min"], batch: int = 0, any_order: bool = False) -> Value:
    """A tensor with slices updated where an array of indices says."""
def select(cond: Value, on_true: Value, on_false: Value) -> Value:
    """Elementwise choice: `on_true` where `cond`, else `on_false`."""
def shl(lhs: Value, rhs: Value) -> Value:
    """Elementwise shift to the left."""
def shr(lhs: Value, rhs: Value) -> Value:
    """Elementwise shift to the right."""
def sign(x: Value) -> Value:
    """Elementwise sign: -1, 0 or 1."""
def sin(x: Value) -> Value:
    """Elementwise sine of radians."""
def sinh(x: Value) -> Value:
    """Elementwise hyperbolic sine."""
def slice(x: Value, *, starts: Shape, sizes: Shape, strides: Sequence[int] | None = None) -> Value:
    """A part of a tensor, with steps."""
def sort(x: Value, places: Value | None = None, *, descending: bool = False, count: int | None = None, below: int | None = None) -> list[Value]:
    """The first elements of each row in order, and where each was."""
def sqrt(x: Value) -> Value:
    """Elementwise square root."""
def sub(lhs: Value, rhs: Value) -> Value:
    """Elementwise difference."""
def tan(x: Value) -> Value:
    """Elementwise tangent of radians."""
def tanh(x: Value) -> Value:
    """Elementwise hyperbolic tangent."""
def transpose(x: Value, *, perm: Sequence[int]) -> Value:
    """Permutes dimensions."""
def trunc(x: Value) -> Value:
    """Elementwise integer part: the nearest integer toward zero."""
def while_(init: Sequence[Value], args: Sequence[Value], *, condition: str, body: str, at_most: int | None = None, bind: Mapping[str, Size] | None = None) -> list[Value]:
    """Values that a function changes for as long as another says so."""
def window(x: Value, *, dims: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None, counts: Sequence[int] | None = None, divisors: Sequence[int] | None = None, offsets: Sequence[int] | None = None) -> Value:
    """Every window of a tensor: windows slide along dimensions, and their elements are new last dimensions."""
def xor(lhs: Value, rhs: Value) -> Value:
    """Elementwise bitwise exclusive or; of i1, inequality."""
def yield_(values: Sequence[Value], *, out: Sequence[TensorType]) -> list[Value]:
    """Ends a region and gives its results."""
