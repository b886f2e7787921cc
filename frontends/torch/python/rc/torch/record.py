"""The ATen operations that PyTorch functions call, recorded below PyTorch's dispatcher, free of mutation.

With `training`, the recorder knows which values need gradients, and leaves to AOTAutograd what rc does not differentiate as PyTorch does
(`derivatives.py`). Nothing that it is given requires gradients itself: `detach` ends them, which is an operation of the graph then.

A `Handle` is a tensor as the program sees it: a fake tensor for its metadata, the recorded `Value` that it holds now, and the memory it lies in.
An operation in place gives its handle a new value. A view by `select` or `slice` writes its new value into what it is a view of; all other
handles of the same memory are stale from then on, and a program that reads one is left to AOTAutograd.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import torch
from torch._C import DispatchKey
from torch._prims_common import get_computation_dtype
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils._python_dispatch import TorchDispatchMode, autograd_would_have_decomposed
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import TensorReferenceAnalysis

from rc.torch import derivatives, parts

aten = torch.ops.aten


class GiveUp(Exception):
    """What a recorder cannot be sure to do right."""


class Value:
    """What an operation gives: its one result, or that at `index`. Without an operation: an argument of the graph or a constant, with a
    `target` to find it by. `requires_grad` as of a tensor, while training."""

    __slots__ = ("op", "index", "val", "target", "requires_grad")

    def __init__(self, op: Op | None, index: int | None, val: FakeTensor, target: object = None, requires_grad: bool = False):
        self.op, self.index, self.val, self.target, self.requires_grad = op, index, val, target, requires_grad


class Op:
    """One call of an ATen operation. `val` is its result, of fake tensors; `origin` what it was called for; `again`: the derivative is to compute it
    again, rather than keep its result."""

    __slots__ = ("target", "args", "kwargs", "val", "origin", "again")

    def __init__(self, target, args: tuple, kwargs: dict, val, origin):
        self.target, self.args, self.kwargs, self.val, self.origin = target, args, kwargs, val, origin
        self.again = False


class Memory:
    """What tensors share that are views of one another. `version` counts the writes."""

    __slots__ = ("version", "is_argument", "order")
    _orders = itertools.count()

    def __init__(self, is_argument: bool = False):
        self.version, self.is_argument, self.order = 0, is_argument, next(self._orders)


class Handle:
    """A tensor of the program. `source` is the handle that it is a view of, by the operation `op`."""

    __slots__ = ("value", "fake", "memory", "version", "source", "op")

    def __init__(self, value: Value, fake: FakeTensor, memory: Memory, source: Handle | None = None, op: Op | None = None):
        self.value, self.fake, self.memory, self.version, self.source, self.op = value, fake, memory, memory.version, source, op

    def read(self) -> Value:
        if self.version != self.memory.version:
            raise GiveUp("a tensor is read whose memory another view changed")
        return self.value

    def write(self, value: Value):
        """Makes all other handles of its memory stale."""
        self.memory.version += 1
        self.value, self.version = value, self.memory.version


@dataclass(frozen=True)
class Kind:
    """What a recorder does with an operation."""

    functional: object = None
    """For an operation in place: the one that gives a new tensor."""
    updates: tuple | None = None
    """For one that updates some of its arguments besides: the one that gives their new values last, and their positions."""
    refused: str | None = None
    """Why it cannot be recorded as it is."""
    composite: bool = False
    """Whether it is a function of other operations."""
    views: int | None = None
    """The position of the argument that the results are views of."""
    direct: bool = False
    """Whether PyTorch's own kernel for meta tensors tells all there is to know of its results, but for the device, which is that of its arguments."""


# Functional operations whose overloads go by other names than those in place.
_FUNCTIONAL = {aten.bernoulli_.float: aten.bernoulli.p}

_ALIASES = {aten.alias.default, aten.detach.default}
"""Views that are all of a tensor, with its sizes and strides: nothing to compute."""

_DIRECT = {aten._unsafe_view.default, aten.fill.Scalar, aten.slice_scatter.default, aten.select_scatter.default}

_ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}

_REFUSED_TAGS = {
    torch.Tag.dynamic_output_shape: "its result's size depends on data",
    torch.Tag.data_dependent_output: "its result depends on data",
    torch.Tag.inplace_view: "it changes a tensor's sizes or strides",
}


@functools.cache
def kind_of(func) -> Kind:
    if not isinstance(func, torch._ops.OpOverload):
        return Kind(refused="it is no operator")
    schema = func._schema
    functional = _functional(func) if schema.is_mutable else None
    updates = _updates(func) if schema.is_mutable else None
    # `prim::device` and its like are PyTorch's properties of tensors, which the dispatcher does not know.
    composite = func.namespace != "prim" and func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    aliased = [i for i, a in enumerate(schema.arguments) if a.alias_info is not None]
    viewed = any(r.alias_info is not None for r in schema.returns)
    one = len(aliased) == 1 and not schema.arguments[aliased[0]].kwarg_only
    refused = next((why for tag, why in _REFUSED_TAGS.items() if tag in func.tags), None)
    if schema.is_mutable:
        refused = refused or "it changes a tensor in place"
    elif viewed and not one:
        refused = refused or "its results are views of several tensors"
    views = aliased[0] if viewed and one else None
    direct = func.namespace == "aten" and (views is not None or torch.Tag.pointwise in func.tags or func in _DIRECT)
    return Kind(functional, updates, refused, composite, views, direct)


def _functional(func):
    """The functional operation with the arguments of one that writes to its first argument and returns it; None where there is none."""
    name = func._schema.name.removeprefix("aten::")
    if func.namespace != "aten" or not name.endswith("_") or name.endswith("__"):
        return None
    written = [a.is_write for a in func._schema.arguments]
    if not written[0] or any(written[1:]):
        return None
    found = _FUNCTIONAL.get(func) or getattr(getattr(aten, name[:-1], None), func._overloadname, None)
    if found is None or found._schema.is_mutable or [str(r.type) for r in found._schema.returns] != ["Tensor"]:
        return None
    named = lambda op: [(a.name, str(a.type)) for a in op._schema.arguments]
    return found if named(found) == named(func) else None


def _updates(func) -> tuple | None:
    """The operation with the same arguments that gives the new values of those which this one updates, and where they are."""
    found = getattr(getattr(torch.ops.aten, f"{func._opname}_functional", None), func._overloadname, None)
    written = [i for i, a in enumerate(func._schema.arguments) if a.is_write]
    same = found is not None and [a.name for a in found._schema.arguments] == [a.name for a in func._schema.arguments]
    if not same or len(found._schema.returns) != len(func._schema.returns) + len(written):
        return None
    return found, written


def mapped(x, f):
    """Arguments or results with each tensor `t` replaced by `f(t)`."""
    if isinstance(x, torch.Tensor):
        return f(x)
    kind = type(x)
    if kind is tuple or kind is list:
        return kind([mapped(v, f) for v in x])
    if kind is dict:
        return {k: mapped(v, f) for k, v in x.items()}
    if isinstance(x, tuple):
        # Named tuples, and the sizes of a tensor.
        return x if kind is torch.Size and not is_symbolic(x) else tuple([mapped(v, f) for v in x])
    if isinstance(x, (torch.SymFloat, torch.SymBool)):
        raise GiveUp("a number that depends on sizes and is no integer")
    if isinstance(x, torch.SymInt) and x.node.hint is None:
        raise GiveUp("a number depends on data")
    return x


def is_symbolic(x) -> bool:
    """Whether the sizes of one of these tensors, or one of these numbers, are known by name alone."""
    if isinstance(x, torch.Tensor):
        return x._has_symbolic_sizes_strides
    if isinstance(x, dict):
        x = x.values()
    elif not isinstance(x, (tuple, list)):
        return isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool))
    return any(map(is_symbolic, x))


def _masks(indices) -> bool:
    """Whether an index takes the elements where it is true."""
    return any(isinstance(x, torch.Tensor) and x.dtype in (torch.bool, torch.uint8) for x in indices)


def _elementwise(func, kind: Kind, args, kwargs) -> tuple | None:
    """What decides the dtype of an operation on elements, whose operands have one shape and lie row by row, as its result then does."""
    first = args[0]
    if kind.views is not None or kwargs or not isinstance(first, torch.Tensor) or first.dim() == 0:
        return None
    key = [func]
    for x in args:
        if not isinstance(x, torch.Tensor):
            key.append((type(x), x) if type(x) in (int, float, bool, str, type(None)) else None)
        elif x.shape == first.shape and x.is_contiguous() and x.stride() == first.stride() == _row_major(x.shape):
            key.append(x.dtype)
        else:
            return None
    return None if None in key else tuple(key)


def _row_major(shape) -> tuple:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(strides[::-1])


def _lies_alike(x: torch.Tensor, sizes, strides, offset=None) -> bool:
    """Whether each element of a tensor is where it is by these strides: those of dimensions of one element are nothing but numbers."""
    same = all(n == 1 or old == new for n, old, new in zip(sizes, x.stride(), strides))
    return tuple(sizes) == tuple(x.shape) and same and offset in (None, x.storage_offset())


def _sources(handle: Handle | None):
    """A handle, and what it is a view of."""
    while handle is not None:
        yield handle
        handle = handle.source


class Recorder(TorchDispatchMode):
    """Records operations into `ops`. `handles` finds the handle of each fake tensor that they may use."""

    def __init__(self, decompositions: dict, mode: FakeTensorMode, training: bool = False):
        super().__init__()
        self.decompositions, self.mode, self.training = decompositions, mode, training
        self.ops: list[Op] = []
        self.handles: dict[int, Handle] = {}
        self.dtypes: dict[tuple, torch.dtype] = {}
        self.origin = None
        self.numbers: dict[object, Handle] = {}
        """The arguments, tensors of one element, that Dynamo passes floats of the program as, by their symbols."""
        self.writes = 0
        self.later: list[Handle] = []
        """Results of the operation at hand that follow what needs gradients, and have none."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            return args[0].device
        return self._call(func, args, kwargs or {})

    def _call(self, func, args, kwargs):
        kind = kind_of(func)
        if any(isinstance(x, torch.SymFloat) for x in (*args, *kwargs.values())):
            args, kwargs = self._with_numbers(func, args), {k: self._constant(x) for k, x in kwargs.items()}
        if func is aten.as_strided_.default:
            return self._stride_anew(args, kwargs)
        if kind.functional is not None and torch.Tag.inplace_view not in func.tags:
            return self._in_place(func, kind.functional, args, kwargs)
        if self.training and kind.updates is not None:
            return self._update(*kind.updates, args, kwargs)
        decomposition = self._decomposition(func, (args, kwargs))
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if kind.composite and autograd_would_have_decomposed(func, [a for a in args if isinstance(a, torch.Tensor)]):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if kind.refused and not (func is aten.index.Tensor and not _masks(args[1])):
            raise GiveUp(f"{func}: {kind.refused}")
        if func is aten.lift_fresh.default and type(args[0]) is torch.Tensor:
            return self._constant(args[0])
        return self._record(func, kind, args, kwargs)

    def _with_numbers(self, func, args: tuple) -> tuple:
        """The arguments of an operation, with floats of the program that Dynamo knows by name: those of arithmetic on the CPU are computed from the tensors that
        they are passed as; the rest become constants, with guards. What follows from sizes is left to AOTAutograd."""
        if func not in _ARITHMETIC or self._device(args) != torch.device("cpu"):
            return tuple(map(self._constant, args))
        dtype = next(x.dtype for x in args if isinstance(x, torch.Tensor))
        dtype = get_computation_dtype(dtype if dtype.is_floating_point else torch.get_default_dtype())
        return tuple([self._number(x, dtype) if isinstance(x, torch.SymFloat) else x for x in args])

    def _constant(self, x):
        """A number as the program has it now, with a guard."""
        if isinstance(x, torch.SymFloat):
            self._symbols_of(x)
            return float(x)
        return x

    def _symbols_of(self, x: torch.SymFloat) -> set:
        """What a float is computed from: floats of the program alone, as a guard of a size would fix the size."""
        symbols = x.node.expr.free_symbols
        if not symbols <= self.numbers.keys():
            raise GiveUp("a number that depends on sizes and is no integer")
        return symbols

    def _number(self, x: torch.SymFloat, dtype: torch.dtype) -> torch.Tensor:
        symbols = self._symbols_of(x)
        for handle in (self.numbers[s] for s in symbols):
            self.handles[id(handle.fake)] = handle
        with self:
            value = sympy_interp(TensorReferenceAnalysis, {s: self.numbers[s].fake for s in symbols}, x.node.expr)
        return self._call(aten._to_copy.default, (value,), {"dtype": dtype})

    def _decomposition(self, func, args):
        """What says an operation in parts; where gradients are needed, in parts that have its derivative."""
        found = self.decompositions.get(func)
        if not self._needs_gradients(args):
            return found
        if (known := parts.PARTS.get(func)) is not None:
            return known
        if found is not None and not derivatives.is_right_in_parts(func):
            raise GiveUp(f"{func}: its parts do not have its derivative")
        return found

    def _needs_gradients(self, args) -> bool:
        found = []
        if self.training:
            mapped(args, lambda x: found.append((handle := self.handles.get(id(x))) is not None and handle.value.requires_grad))
        return any(found)

    def stopped(self, handle: Handle):
        """Has a handle hold its value without gradients."""
        op = Op(aten.detach.default, (handle.read(),), {}, handle.fake, self.origin)
        self.ops.append(op)
        handle.value = Value(op, None, handle.fake)

    def handle(self, fake: torch.Tensor) -> Handle:
        handle = self.handles.get(id(fake))
        if handle is None:
            raise GiveUp("a tensor that is neither an argument nor computed from arguments")
        return handle

    def _read(self, fake) -> Value:
        return self.handle(fake).read()

    def _record(self, func, kind: Kind, args, kwargs):
        op = Op(func, mapped(args, self._read), mapped(kwargs, self._read), None, self.origin)
        op.val = self._metadata(func, kind, args, kwargs)
        needs = self._needs_gradients((args, kwargs)) and self._may_follow(op, args)
        source = self.handle(args[kind.views]) if kind.views is not None else None
        if func in _ALIASES and not (needs and func is aten.detach.default):
            self.handles[id(op.val)] = Handle(source.read(), op.val, source.memory, source, op)
            return op.val
        if isinstance(op.val, torch.Tensor):
            self._result(op, None, op.val, source, needs)
        elif isinstance(op.val, (tuple, list)):
            for i, v in enumerate(op.val):
                if isinstance(v, torch.Tensor):
                    self._result(op, i, v, source, needs)
        elif op.val is not None:
            # A property of a tensor: a number that is known.
            return mapped(op.val, None)
        self.ops.append(op)
        while self.later:
            self.stopped(self.later.pop())
        return op.val

    def _may_follow(self, op: Op, args) -> bool:
        """Whether a result of an operation on what needs gradients may need them; gives up where rc has not PyTorch's derivative."""
        found = []
        mapped(op.val, lambda x: found.append(x.is_floating_point() or x.is_complex()))
        if any(found) and (why := derivatives.refused(op.target, args)) is not None:
            raise GiveUp(f"{op.target}: {why}")
        return any(found)

    def _metadata(self, func, kind: Kind, args, kwargs):
        """An operation's result as fake tensors."""
        if is_symbolic((args, kwargs)):
            return func(*args, **kwargs)
        device = self._device(args) if kind.direct and "device" not in kwargs else None
        with torch._C._DisablePythonDispatcher():
            # For the metadata alone there is nothing to decompose.
            if device is None:
                return func(*args, **kwargs)
            key = _elementwise(func, kind, args, kwargs)
            with in_kernel_invocation_manager(self.mode):
                if (dtype := self.dtypes.get(key)) is not None:
                    found = torch.empty(args[0].shape, dtype=dtype, device="meta")
                else:
                    found = func(*args, **kwargs)
            if key is not None and isinstance(found, torch.Tensor) and found.shape == args[0].shape and found.is_contiguous():
                self.dtypes[key] = found.dtype
            return mapped(found, lambda x: FakeTensor(self.mode, x, device))

    def _device(self, args) -> torch.device | None:
        """The one device of all tensors among the arguments; None where one is complex, of which a view may be a lazy conjugate."""
        real = lambda x: type(x) is FakeTensor and not x.dtype.is_complex
        devices = {x.device if real(x) else None for x in args if isinstance(x, torch.Tensor)}
        return devices.pop() if len(devices) == 1 else None

    def _result(self, op: Op, index: int | None, fake: torch.Tensor, source: Handle | None, needs: bool = False):
        if type(fake) is not FakeTensor or id(fake) in self.handles:
            raise GiveUp(f"{op.target}: its result is not a new tensor")
        memory = source.memory if source is not None else Memory()
        handle = self.handles[id(fake)] = Handle(Value(op, index, fake), fake, memory, source, op)
        if needs and fake.is_complex():
            raise GiveUp(f"{op.target}: gradients of complex numbers")
        if needs and fake.is_floating_point():
            if derivatives.passes(op.target, index):
                handle.value.requires_grad = True
            elif op.target is not aten.detach.default:
                self.later.append(handle)

    def _constant(self, tensor: torch.Tensor):
        """A number that the program itself makes, as `torch.tensor(…)` does."""
        fake = aten.lift_fresh_copy.default(tensor)
        given = Value(None, None, fake, tensor)
        op = Op(aten.lift_fresh_copy.default, (given,), {}, fake, self.origin)
        self.ops.append(op)
        self._result(op, None, fake, None)
        return fake

    # In place

    def _in_place(self, func, functional, args, kwargs):
        target = self.handle(args[0])
        self.writes += 1
        begin = next(Memory._orders)
        if func is aten.bernoulli_.float and len(args) == 1:
            # The dispatcher leaves defaults out, and the functional operation has none.
            args = (*args, kwargs.get("p", 0.5))
        result = self._call(functional, args, kwargs)
        if result.dtype != target.fake.dtype:
            result = self._call(aten._to_copy.default, (result,), {"dtype": target.fake.dtype})
        if result.shape != target.fake.shape or result.device != target.fake.device:
            raise GiveUp(f"{func}: its result has another shape than the tensor that it is written to")
        if self.handle(result).memory.order < begin:
            result = self._call(aten.clone.default, (result,), {})
        self._write(target, result)
        return args[0]

    def _update(self, functional, written: list[int], args, kwargs):
        """An operation that updates some of its arguments, which are its last results."""
        self.writes += 1
        results = self._call(functional, args, kwargs)
        count = len(results) - len(written)
        for i, new in zip(written, results[count:]):
            target = self.handle(args[i])
            if new.dtype != target.fake.dtype:
                new = self._call(aten._to_copy.default, (new,), {"dtype": target.fake.dtype})
            self._write(target, new)
        return tuple(results[:count])

    def _stride_anew(self, args, kwargs):
        """Other strides for a tensor that only this call knows, as pooling to one pixel gives it."""
        target = self.handle(args[0])
        value = target.read()
        if target.source is not None or target.memory.is_argument or value.op is None or value.op.origin is not self.origin:
            raise GiveUp("strides are changed in place")
        if value.requires_grad:
            if kwargs or not _lies_alike(target.fake, *args[1:]):
                raise GiveUp("strides of what needs gradients are changed in place")
            return aten.as_strided_.default(*args)
        rest = (mapped(args[1:], self._read), mapped(kwargs, self._read))
        op = Op(aten.as_strided.default, (value, *rest[0]), rest[1], None, self.origin)
        op.val = aten.as_strided_.default(*args, **kwargs)
        self.ops.append(op)
        target.value = Value(op, None, target.fake)
        return args[0]

    def _write(self, target: Handle, result: torch.Tensor):
        """Makes `result` the value of a handle, and writes it into what it is a part of."""
        value = self._read(result)
        target.read()
        if target.memory.is_argument and not (self.training and target.source is None and not target.value.requires_grad):
            raise GiveUp("an argument is changed")
        if (target.value.requires_grad or value.requires_grad) and not self._is_seen(target):
            raise GiveUp("a tensor that needs gradients is changed where PyTorch does not see it")
        chain = [(target, value)]
        while (whole := self._whole(target, result)) is not None:
            target, result = target.source, whole
            chain.append((target, self._read(result)))
        target.write(chain[-1][1])
        for handle, new in chain:
            handle.value, handle.version = new, handle.memory.version

    def _is_seen(self, target: Handle) -> bool:
        """Whether PyTorch takes a write for one to what needs gradients."""
        through_detached = any(h.op is not None and h.op.target is aten.detach.default for h in _sources(target))
        return torch.is_grad_enabled() and not target.memory.is_argument and not through_detached

    def _whole(self, part: Handle, new: torch.Tensor):
        """What `part` is a view of with the part replaced; None where there is no operation for it, or it is stale already."""
        source = part.source
        if source is None or source.version != source.memory.version or self.handles.setdefault(id(source.fake), source) is not source:
            return None
        kwargs = part.op.kwargs
        match part.op.target:
            case aten.slice.Tensor:
                return self._call(aten.slice_scatter.default, (source.fake, new, *part.op.args[1:]), kwargs)
            case aten.select.int:
                return self._call(aten.select_scatter.default, (source.fake, new, *part.op.args[1:]), kwargs)
        return new if part.op.target in _ALIASES else None
