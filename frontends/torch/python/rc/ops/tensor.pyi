# Made from the declarations by `make docs`; edit those.
from collections.abc import Mapping, Sequence
from typing import Literal

from rc.function import Function, Value
from rc.types import Shape, Size, TensorType

def adaptive_avg_pool(x: Value, *, sizes: Sequence[int], windows: bool = False) -> Value:
    """The mean of each of a given number of parts."""
def adaptive_avg_pool_grad(y: Value, *, sizes: Sequence[int]) -> Value:
    """The gradient of tensor.adaptive_avg_pool."""
def add(lhs: Value, rhs: Value) -> Value:
    """Elementwise sum, with broadcasting."""
def all(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """Whether all elements along dimensions are true."""
def amax(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The maximum along dimensions."""
def amin(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The minimum along dimensions."""
def any(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """Whether some element along dimensions is true."""
def argmax(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The i64 number of the first greatest element along dimensions."""
def argmin(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The i64 number of the first least element along dimensions."""
def avg_pool(x: Value, *, window: Sequence[int], strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, ceil: bool = False, count_padding: bool = True, divisor: int | None = None) -> Value:
    """The mean of each window."""
def avg_pool_grad(y: Value, *, sizes: Shape, window: Sequence[int], strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, ceil: bool = False, count_padding: bool = True, divisor: int | None = None) -> Value:
    """The gradient of tensor.avg_pool."""
def cat(xs: Sequence[Value], *, dim: int) -> Value:
    """Joins tensors along a dimension."""
def conv(x: Value, w: Value, bias: Value | None = None, *, strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, dilations: Sequence[int] | None = None, groups: int = 1, precision: Literal["tf32"] | None = None, order: Literal["channels_first", "channels_last"] = "channels_first", group_channels: int = 64, in_planes: bool = False) -> Value:
    """A convolution (cross-correlation) over any number of spatial dimensions."""
def conv_transpose(y: Value, w: Value, bias: Value | None = None, *, sizes: Shape, strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, dilations: Sequence[int] | None = None, groups: int = 1, precision: Literal["tf32"] | None = None, order: Literal["channels_first", "channels_last"] = "channels_first", group_channels: int = 64) -> Value:
    """The transpose of a convolution: its gradient for the operand x, and what PyTorch calls a transposed convolution."""
def conv_weight_grad(x: Value, y: Value, *, window: Sequence[int], strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, dilations: Sequence[int] | None = None, groups: int = 1, precision: Literal["tf32"] | None = None, order: Literal["channels_first", "channels_last"] = "channels_first") -> Value:
    """The gradient of a convolution for its weights."""
def cross_entropy(logits: Value, target: Value, *, ignore_index: int = -100) -> Value:
    """The mean over rows of -log softmax(logits) at the target."""
def cumprod(x: Value, *, dim: int) -> Value:
    """Products along a dimension up to each element."""
def cumsum(x: Value, *, dim: int) -> Value:
    """Sums along a dimension up to each element."""
def div(lhs: Value, rhs: Value) -> Value:
    """Elementwise quotient, with broadcasting."""
def embedding(table: Value, ids: Value) -> Value:
    """Rows of a table, at the places that ids name."""
def flip(x: Value, *, dims: Sequence[int]) -> Value:
    """The elements in the opposite order along dimensions."""
def gelu(x: Value, *, approximate: Literal["none", "tanh"] = "none") -> Value:
    """x Φ(x), with the normal distribution's Φ by erf or by tanh."""
def layer_norm(x: Value, weight: Value | None = None, bias: Value | None = None, *, eps: float = 1e-5) -> Value:
    """(x - mean) / sqrt(variance + eps) over the last dimension, scaled and shifted."""
def linear(x: Value, w: Value, bias: Value | None = None) -> Value:
    """x wᵀ + b over the last dimension of x."""
def log_softmax(x: Value, *, dim: int) -> Value:
    """x - max - log sum exp(x - max) along a dimension."""
def logsumexp(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """log(sum(exp(x))) along dimensions."""
def matmul(a: Value, b: Value) -> Value:
    """The matrix product of the last two dimensions."""
def max_pool(x: Value, *, window: Sequence[int], strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, dilations: Sequence[int] | None = None, ceil: bool = False) -> list[Value]:
    """The maximum of each window, and where it is."""
def max_pool_grad(y: Value, indices: Value, *, sizes: Shape, window: Sequence[int], strides: Sequence[int] | None = None, padding: Sequence[int] | None = None, dilations: Sequence[int] | None = None, ceil: bool = False) -> Value:
    """The gradient of tensor.max_pool: each window's goes to the element that was its maximum."""
def maximum(lhs: Value, rhs: Value) -> Value:
    """Elementwise maximum, NaN where either is NaN, with broadcasting."""
def mean(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The mean along dimensions."""
def minimum(lhs: Value, rhs: Value) -> Value:
    """Elementwise minimum, NaN where either is NaN, with broadcasting."""
def mul(lhs: Value, rhs: Value) -> Value:
    """Elementwise product, with broadcasting."""
def normalize(x: Value, weight: Value | None = None, bias: Value | None = None, *, dims: Sequence[int], eps: float = 1e-5) -> list[Value]:
    """(x - mean) / sqrt(variance + eps) over dimensions, scaled and shifted, with mean and variance."""
def pad(x: Value, *, low: Sequence[int], high: Sequence[int], mode: Literal["constant", "reflect", "replicate", "circular"] = "constant", value: float = 0.0) -> Value:
    """Adds elements before and after, along each dimension."""
def permute(x: Value, *, dims: Sequence[int]) -> Value:
    """Permutes dimensions."""
def pow(lhs: Value, rhs: Value) -> Value:
    """Elementwise power, with broadcasting."""
def prod(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The product along dimensions."""
def ragged_dot(x: Value, w: Value, ends: Value) -> Value:
    """Each row of x times the matrix of its group."""
def ragged_outer(x: Value, y: Value, ends: Value) -> Value:
    """For each group of rows, those of x, transposed, times those of y."""
def rand_int(seed: Value, offset: Value, *, shape: Shape, elem: str, low: int, high: int) -> Value:
    """Random integers, uniform in [low, high)."""
def rand_normal(seed: Value, offset: Value, *, shape: Shape, elem: str) -> Value:
    """Random numbers of the normal distribution with mean 0 and variance 1."""
def rand_uniform(seed: Value, offset: Value, *, shape: Shape, elem: str) -> Value:
    """Random numbers, uniform in [0, 1)."""
def relu(x: Value) -> Value:
    """max(x, 0), NaN of NaN."""
def reshape(x: Value, *, shape: Shape) -> Value:
    """The same elements in row-major order, in another shape."""
def rms_norm(x: Value, weight: Value | None = None, *, eps: float = 1e-6) -> Value:
    """x / sqrt(mean(x²) + eps) over the last dimension, scaled."""
def roll(x: Value, *, dims: Sequence[int], shifts: Sequence[int]) -> Value:
    """The elements moved along dimensions; what leaves at one end comes in at the other."""
def sdpa(q: Value, k: Value, v: Value, mask: Value | None = None, *, causal: bool = False, sums: bool = False, scale: float | None = None) -> list[Value]:
    """Scaled dot-product attention: softmax(q kᵀ scale + mask) v."""
def silu(x: Value) -> Value:
    """x / (1 + exp(-x))."""
def softmax(x: Value, *, dim: int) -> Value:
    """exp(x - max) / sum exp(x - max) along a dimension."""
def sort(x: Value, *, dim: int, descending: bool = False, pairs: int | None = None, below: int | None = None) -> list[Value]:
    """The elements in order along a dimension, and where each was."""
def split(x: Value, *, sizes: Shape, dim: int) -> list[Value]:
    """Parts of a tensor along a dimension."""
def std(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False, correction: int = 1) -> Value:
    """The standard deviation along dimensions."""
def stop_gradient(x: Value) -> Value:
    """Its operand, with the derivative 0."""
def sub(lhs: Value, rhs: Value) -> Value:
    """Elementwise difference, with broadcasting."""
def sum(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False) -> Value:
    """The sum along dimensions."""
def topk(x: Value, *, dim: int, k: int, largest: bool = True, pairs: int | None = None) -> list[Value]:
    """The k greatest (or least) elements along a dimension, in order, and where each was."""
def tril(x: Value, *, diagonal: int = 0) -> Value:
    """The elements on and below a diagonal."""
def triu(x: Value, *, diagonal: int = 0) -> Value:
    """The elements on and above a diagonal."""
def var(x: Value, *, dims: Sequence[int] | None = None, keepdim: bool = False, correction: int = 1) -> Value:
    """The variance along dimensions."""
def where(cond: Value, on_true: Value, on_false: Value) -> Value:
    """Elementwise choice with broadcasting: `on_true` where `cond`, else `on_false`."""
