"""Errors that name operations of the user's program."""

import re


class Unsupported(Exception):
    """One operation that rc cannot compile; the lowering gathers them."""


class UnsupportedOps(RuntimeError):
    """A graph has operations that rc cannot compile. `problems` is a list of (operation, reason, Python line)."""

    def __init__(self, problems: list[tuple[str, str, str]]):
        self.problems = problems
        seen: dict[tuple[str, str, str], int] = {}
        for problem in problems:
            seen[problem] = seen.get(problem, 0) + 1
        lines = []
        for (op, reason, place), count in seen.items():
            times = f" ({count} times)" if count > 1 else ""
            lines.append(f"  {op}{times}: {reason}" + (f"\n    at {place}" if place else ""))
        what = "operation" if len(seen) == 1 else "operations"
        super().__init__(
            f"not supported: {len(seen)} {what} of this graph\n" + "\n".join(lines) + "\n"
            'help: torch.compile(…, backend="rc", options={"fallback": True}) runs them in PyTorch, between compiled parts'
        )


def name_of(node) -> str:
    """An operation's name; that of the custom operation, where PyTorch wraps one that mutates."""
    if str(node.target).startswith("auto_functionalized") and node.args:
        return str(node.args[0])
    return str(node.target)


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def python_line(node) -> tuple[str, int] | None:
    """File and line of the Python code that made a node, where it is known: the innermost frame of its stack."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return (frames[-1][0], int(frames[-1][1])) if frames else None


def place(node) -> str:
    """`model.py:12, in layers.0.attn`, for messages."""
    line = python_line(node)
    stack = node.meta.get("nn_module_stack") or {}
    module = next(reversed(list(stack.values())), (None,))[0] if stack else None
    where = f"{line[0]}:{line[1]}" if line else ""
    return where + (f", in {module}" if module and where else "")
