"""Training steps that rc differentiates: a graph's forward and backward function, as one function of PyTorch's autograd.

The graph is lowered as one for inference is. rc differentiates it, decides what is kept, and compiles both functions. AOTAutograd has no part in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from rc._native import Module, Program, RcError
from rc.torch import logs
from rc.torch.behind import Behind
from rc.torch.compile import Compiling, configure, device_name, dump_folder, next_number, prepared, ready, unsupported
from rc.torch.dtypes import TO_TORCH
from rc.torch.errors import Unsupported
from rc.torch.layout import row_major, strides_of
from rc.torch.lower import Lowered, Lowering, Problems
from rc.torch.options import Options
from rc.torch.updates import separate

TWICE = b"""not supported: gradients of gradients through a function that rc compiled; compile the function without the part that is differentiated \
twice, or leave create_graph out"""


def compile_step(gm: GraphModule, options: Options) -> Step | None:
    """The function of a traced graph of training; None, with the reason in RC_LOGS, where rc cannot compile or differentiate it."""
    try:
        with _disable_current_modes():
            return _compile(gm, options)
    except (Problems, Unsupported, RcError) as why:
        logs.say("autograd", f"left to AOTAutograd: {why}")
        return None


def _compile(gm: GraphModule, options: Options) -> Step:
    number = next_number()
    results, arguments = gm.meta["rc.gradients"]
    writes, count = separate(gm)
    prepared(gm, options, f"{number}_training")
    began = time.perf_counter()
    lowered = Lowering(gm).run()
    _check(lowered, [write.argument for write in writes], arguments)
    configure(lowered, options)
    places = [position for position, *_ in lowered.inputs]
    values = [value for _, value in lowered.returns[:count]]
    translated = time.perf_counter()
    parts = lowered.module.differentiate(
        device_name(lowered.device), [places.index(i) for i in arguments], [values[i] for i in results], budget()
    )
    forward, backward, saved, kept, remarks = parts
    divided = time.perf_counter()
    logs.say("time", f"{len(lowered.nodes)} operations: translated in {translated - began:.3f} s, differentiated in {divided - translated:.3f} s")
    for remark in remarks:
        logs.say("autograd" if " keeps " in remark else "remarks", remark.strip())
    if (folder := dump_folder(options)) is not None:
        (folder / f"{number}_forward.ir").write_text(forward.text())
        (folder / f"{number}_backward.ir").write_text(backward.text())
    kept = [(list(sizes), TO_TORCH[element]) for element, sizes in kept]
    placeholders = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    dtypes = {i: val.dtype for i, val in enumerate(placeholders) if isinstance(val, torch.Tensor)}
    step = Step(lowered, dtypes, results, arguments, values, saved, kept)
    backward = step.once(backward)
    name, given = f"backward {number}", step.likely()
    one, two = _begun(forward, step.without_others(backward, given), lowered, options, number)
    step.forward_behind = Behind(lambda: step.forward_of(one.program(), options, one.name))
    step.backwards[given] = Behind(lambda: step.backward_of(two.program(), given, options, name))
    step.later = lambda: step.backward_of(Compiling(backward, lowered, options, name).program(), tuple(results), options, name)
    if one.is_told or two.is_told:
        step.wait()
    return step


def _begun(forward: Module, backward: Module, lowered: Lowered, options: Options, number: int) -> tuple[Compiling, Compiling]:
    """Both functions, compiled to where all is known that rc cannot do: at the same time, but where something is measured, which has the machine alone."""
    one, two = (forward, lowered, options, f"forward {number}"), (backward, lowered, options, f"backward {number}")
    if options.tune:
        return Compiling(*one), Compiling(*two)
    other = Behind(lambda: Compiling(*one))
    try:
        begun = Compiling(*two)
    finally:
        first = other.result()
    return first, begun


def budget() -> float:
    """The share of what would be kept that PyTorch's setting allows."""
    return float(torch._functorch.config.activation_memory_budget)


def _check(lowered: Lowered, written: list[int], arguments: list[int]):
    if lowered.module is None:
        raise Unsupported("a graph of training that computes nothing")
    if not set(arguments) <= {position for position, *_ in lowered.inputs}:
        raise Unsupported("gradients of an argument that is not used")
    if lowered.lazy or lowered.repeated or lowered.moved or lowered.fetched:
        raise Unsupported("an argument that is conjugated, negated, repeated in memory or on another device, or a result there")
    if any(kind not in ("result", "arg") for kind, _ in lowered.returns):
        raise Unsupported("a result that is a view or no tensor")
    updated = [value for kind, value in lowered.returns if kind == "arg"]
    if sorted(updated) != sorted(written):
        raise Unsupported("an argument is changed in part")


class Step:
    """A compiled training step. Its tensors are the call's arguments, those of the graph itself, and the seed."""

    def __init__(self, lowered: Lowered, dtypes: dict, results, arguments, values, saved, kept):
        self.lowered, self.dtypes, self.saved, self.kept = lowered, dtypes, saved, kept
        self.wanted, self.arguments = results, arguments
        """The results that have gradients, and the arguments that they need them for."""
        self.laid = {position: (order, physical) for position, order, physical, _ in lowered.inputs}
        """How each of the call's arguments lies in memory."""
        self.gradients: list[int] = []
        """Of each of the arguments, the number of its gradient among a backward function's results."""
        self.values = values
        """Of each of the graph's results, its number among the function's."""
        self.count = len(lowered.results)
        self.flat = [i for i in range(len(values)) if i not in results]
        self.updated = [value for kind, value in lowered.returns if kind == "arg"]
        self.forward: Program | None = None
        """The forward function, from the first call on."""
        self.forward_behind: Behind | None = None
        self.backwards: dict[tuple[int, ...], Program | Behind] = {}
        """Backward functions, by the results that they take gradients of."""
        self.later: Callable[[], Program] | None = None
        """Compiles the one that takes all."""
        inputs = len(lowered.inputs)
        self.of_arguments = [lowered.inputs[k][0] if k < inputs else None for k in saved]
        returned = {value: i for i, value in enumerate(values)}
        self.of_results = [self._returned(k - inputs, returned) if k >= inputs else None for k in saved]

    def _returned(self, number: int, returned: dict[int, int]) -> int:
        """Where the forward function returns its result of this number."""
        return returned[number] if number < self.count else len(self.values) + number - self.count

    def forward_of(self, program: Program, options: Options, name: str) -> Program:
        """With the layout of its calls: it returns the graph's results, then what is kept."""
        results = [*self.lowered.results, *((sizes, strides_of(sizes, row_major(len(sizes))), dtype) for sizes, dtype in self.kept)]
        returns = [("result", value) for value in self.values]
        returns += [("result", self.count + i) for i in range(len(self.kept))]
        program.layout(self.lowered.inputs, self.lowered.integers, results, returns, [], None, options.graphs, self._shown(name))
        return ready(program, self._shown(name))

    def wait(self) -> Program:
        """The forward function, once it and those of the backward part are compiled that are being compiled."""
        for results, program in self.backwards.items():
            if isinstance(program, Behind):
                self.backwards[results] = _result(program)
        return self.first()

    def first(self) -> Program:
        """The forward function, once it is compiled."""
        behind = self.forward_behind
        if behind is not None:
            # In this order, for other threads that are here.
            self.forward = _result(behind)
            self.forward_behind = None
        return self.forward

    def likely(self) -> tuple[int, ...]:
        """The results that have gradients in most steps: the losses, where there are some."""
        losses = tuple(i for i in self.wanted if not self.lowered.results[self.values[i]][0])
        return losses or tuple(self.wanted)

    def once(self, backward: Module) -> Module:
        """The function without gradients that others are too: a tensor is given to several arguments, as in eager, where they lie alike."""
        kinds = [(*self.laid[i], self.dtypes[i]) for i in self.arguments]
        backward, self.gradients = backward.give_once([kinds.index(kind) for kind in kinds])
        return backward

    def without_others(self, backward: Module, given: tuple[int, ...]) -> Module:
        absent = [number for number, i in enumerate(self.wanted) if i not in given]
        return backward.without(absent) if absent else backward

    def backward(self, given: set[int]) -> tuple[Program, tuple[int, ...]]:
        """A backward function that takes gradients of these results, and all that it takes them of."""
        for results, program in self.backwards.items():
            if given <= set(results):
                if isinstance(program, Behind):
                    program = self.backwards[results] = _result(program)
                return program, results
        results = tuple(self.wanted)
        program = self.backwards[results] = self.later()
        return program, results

    def backward_of(self, program: Program, given: tuple[int, ...], options: Options, name: str) -> Program:
        """It takes what is saved, the gradients of the results `given`, and the call's integers, and returns the gradients of arguments."""
        inputs, results, count = [], [], len(self.lowered.inputs)
        for k in self.saved:
            if k < count:
                about = self.lowered.inputs[k][1:]
            elif k - count < self.count:
                about = self._as_input(k - count)
            else:
                sizes, _ = self.kept[k - count - self.count]
                about = (row_major(len(sizes)), sizes, False)
            inputs.append((len(inputs), *about))
        for i in given:
            inputs.append((len(inputs), *self._as_input(self.values[i])))
        first = [self.arguments[self.gradients.index(number)] for number in sorted(set(self.gradients))]
        for i in first:
            order, physical = self.laid[i]
            sizes = [physical[order.index(d)] for d in range(len(order))]
            results.append((sizes, strides_of(sizes, order), self.dtypes[i]))
        returns = [("result", i) for i in range(len(results))]
        integers = [(len(inputs) + j, symbol) for j, (_, symbol) in enumerate(self.lowered.integers)]
        program.layout(inputs, integers, results, returns, [], None, options.graphs, self._shown(name))
        return ready(program, self._shown(name))

    def _as_input(self, number: int) -> tuple:
        """How a result of the lowered function is passed on."""
        sizes, order = self.lowered.results[number][0], self.lowered.orders[number]
        return order, [sizes[d] for d in order], False

    def _shown(self, name: str) -> str:
        return f"rc: {name} ({len(self.lowered.nodes)} operations)"

    def function(self) -> Callable:
        """What takes the call's arguments: of a plain function, Dynamo's calls take 9 us less than of an object (Python 3.11)."""
        apply, captured = _Step.apply, self.lowered.captured
        if self.lowered.seeded:
            return lambda *args: apply(self, *args, *captured, self._seed())
        return lambda *args: apply(self, *args, *captured)

    def _seed(self) -> torch.Tensor:
        return torch.empty((), dtype=torch.int64, device=self.lowered.device).random_()


class _Step(torch.autograd.Function):
    """A step's functions, as autograd calls them."""

    @staticmethod
    def forward(ctx, step: Step, *args):
        values = (step.forward or step.first())(*args)
        count = len(step.values)
        results = tuple(values[:count])
        ctx.step, ctx.count, ctx.integers = step, len(args), [args[a] for a, _ in step.lowered.integers]
        ctx.like = {i: (results[i].shape, results[i].stride()) for i in step.wanted}
        ctx.save_for_backward(*(args[a] if a is not None else values[r] for a, r in zip(step.of_arguments, step.of_results)))
        ctx.set_materialize_grads(False)
        if step.flat:
            ctx.mark_non_differentiable(*(results[i] for i in step.flat))
        if step.updated:
            torch.autograd.graph.increment_version([args[i] for i in step.updated])
        return results

    @staticmethod
    def backward(ctx, *gradients):
        step = ctx.step
        values = list(ctx.saved_tensors)
        ctx.maybe_clear_saved_tensors()
        program, given = step.backward({i for i in step.wanted if gradients[i] is not None})
        values += [_given(gradients[i], step, i, *ctx.like[i]) for i in given]
        values += ctx.integers
        # The only list that holds them: the program empties it, and lets go of each tensor when it is read for the last time.
        found = program(values)
        if torch.is_grad_enabled():
            found = _only_once(found)
        of_arguments = [None] * (ctx.count + 1)
        for i, number in zip(step.arguments, step.gradients):
            of_arguments[i + 1] = found[number]
        return tuple(of_arguments)


def _result(program: Behind) -> Program:
    try:
        return program.result()
    except Problems as e:
        raise unsupported(e.problems) from None


def _given(gradient: torch.Tensor | None, step: Step, i: int, sizes, strides) -> torch.Tensor:
    """A result's gradient: zeros where nothing follows the result, which has these sizes and strides."""
    if gradient is None:
        dtype = step.lowered.results[step.values[i]][2]
        return torch.empty_strided(sizes, strides, dtype=dtype, device=step.lowered.device).zero_()
    return gradient.resolve_neg()


def _only_once(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients whose own raise an error."""
    error = torch._C._functions.DelayedError(TWICE, len(gradients))
    found = error(*(gradient.detach().requires_grad_() for gradient in gradients))
    return [found] if isinstance(found, torch.Tensor) else list(found)
