"""Functions that make operations, from the operations' declarations."""

from __future__ import annotations

import inspect
import keyword
from typing import Any

from rc import _native
from rc.function import Function, Value
from rc.types import size, sizes

Parameter = inspect.Parameter


class Operation:
    """A function that makes one operation."""

    def __init__(self, declaration: tuple):
        self.op, self.summary, doc, self.operands, self.attrs, self.infers, self.results = declaration
        self.__name__ = python_name(self.op.split(".")[1])
        self.__qualname__ = self.__name__
        self.__doc__ = "\n\n".join(filter(None, [self.summary, doc, *(f"{python_name(name)}: {what}" for name, *_, what in self.attrs)]))
        self.__signature__ = inspect.Signature(list(self._parameters()), return_annotation=self.result_type())

    def _parameters(self):
        both, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
        if not self.operands:
            yield Parameter("function", both, annotation="Function")
        # What may be left out comes last.
        for name, arity in sorted(self.operands, key=lambda operand: operand[1] == "optional"):
            kind = {"one": "Value", "optional": "Value | None", "variadic": "Sequence[Value]"}[arity]
            yield Parameter(python_name(name), both, annotation=kind, default=None if arity == "optional" else Parameter.empty)
        for name, kind, default, _ in self.attrs:
            kind = f"{kind} | None" if default == "None" else kind
            yield Parameter(python_name(name), by_name, annotation=kind, default=Parameter.empty if default is None else Literal(default))
        if not self.infers:
            yield Parameter("out", by_name, annotation="TensorType" if self.results == 1 else "Sequence[TensorType]")

    def result_type(self) -> str:
        return "Value" if self.results == 1 else "list[Value]"

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = self.__signature__.bind(*args, **named).arguments
        groups = [given.get(python_name(name)) for name, _ in self.operands]
        attrs = {name: given[python_name(name)] for name, *_ in self.attrs if given.get(python_name(name)) is not None}
        for name, kind, *_ in self.attrs:
            if name in attrs and "Shape" in kind:
                attrs[name] = list(sizes(attrs[name]))
            elif name in attrs and "Mapping" in kind:
                attrs[name] = [(symbol, size(bound)) for symbol, bound in attrs[name].items()]
        made = self._function(given, groups)._make(self.op, groups, attrs, given.get("out"))
        return [made] if self.results != 1 and not isinstance(made, list) else made

    def _function(self, given: dict[str, Any], groups: list[Any]) -> Function:
        if not self.operands:
            if not isinstance(given["function"], Function):
                raise TypeError(f"'{self.op}' has no operands, and takes the function first")
            return given["function"]
        for group in groups:
            for value in group if isinstance(group, (list, tuple)) else [group]:
                if isinstance(value, Value):
                    return value.function
        raise TypeError(f"'{self.op}' takes values of a function as operands")

    def __repr__(self) -> str:
        return f"{self.op}{self.__signature__}"


class Literal:
    """A default as Python writes it."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def operations(dialect: str) -> dict[str, Operation]:
    """The operations of a dialect, by Python's names of them."""
    made = [Operation(declaration) for declaration in _native.operations(dialect)]
    return {operation.__name__: operation for operation in made}


def stubs(dialect: str) -> str:
    """The operations of a dialect as a stub file."""
    lines = [
        "# Made from the declarations by `make docs`; edit those.",
        "from collections.abc import Mapping, Sequence",
        "from typing import Literal",
        "",
        "from rc.function import Function, Value",
        "from rc.types import Shape, Size, TensorType",
        "",
    ]
    for operation in operations(dialect).values():
        parameters, keywords = [], False
        for parameter in operation.__signature__.parameters.values():
            if parameter.kind is Parameter.KEYWORD_ONLY and not keywords:
                parameters.append("*")
                keywords = True
            default = "" if parameter.default is Parameter.empty else f" = {parameter.default!r}"
            parameters.append(f"{parameter.name}: {parameter.annotation}{default}")
        lines.append(f"def {operation.__name__}({', '.join(parameters)}) -> {operation.result_type()}:")
        lines.append(f'    """{operation.summary}"""')
    return "\n".join(lines) + "\n"
