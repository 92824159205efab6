"""What a component says when it refuses a value, read from its own code: the text of every `require` it reaches.

A refusal is `require(field, holds, allowed, value)`. The code that a component checks itself with is followed
without being run, so that checks of values it does not have by default are found too.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from specfw.registry import require

Refusal = tuple[str, str]
"""A field, and what is allowed there."""


def allowed(cls: type) -> dict[str, str]:
    """What each field of the component `cls` may be, in the words of its refusals; base classes first."""
    checks = [vars(base)["__post_init__"] for base in reversed(cls.__mro__) if "__post_init__" in vars(base)]
    return gathered(pair for check in checks for pair in refusals(check, {}))


def gathered(pairs: Iterator[Refusal]) -> dict[str, str]:
    """The refusals by field; `values.{token}` is about the field `values`."""
    found: dict[str, list[str]] = {}
    for field, said in pairs:
        texts, words = found.setdefault(field.partition(".")[0], []), re.sub(r"\b(\w+) = \1\b", r"\1", said)
        if words not in texts:
            texts.append(words)
    return {field: "; ".join(texts) for field, texts in found.items()}


def refusals(function: FunctionType, given: Mapping[str, str]) -> Iterator[Refusal]:
    """Every refusal that `function` can reach, in order; `given` are its arguments as far as they are known."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    yield from _Reader(function.__globals__, dict(given)).block(definition.body)


class _Reader:
    """Reads statements in order and keeps the texts that names stand for."""

    def __init__(self, module: Mapping[str, Any], texts: dict[str, str]) -> None:
        self._module, self._texts = dict(module), texts

    def block(self, statements: list[ast.stmt]) -> Iterator[Refusal]:
        for statement in statements:
            match statement:
                case ast.Assign(targets=[ast.Name(name)], value=value):
                    yield from self.calls(value)
                    if not isinstance(value, ast.IfExp):  # then its name says more
                        self._texts[name] = self.text(value)
                case ast.For(target=target, iter=items, body=body):
                    yield from self.calls(items)
                    yield from self.loop(target, items, body)
                case ast.If(test=test, body=body, orelse=orelse):
                    yield from self.calls(test)
                    yield from self.block([*body, *orelse])
                case _:
                    yield from self.calls(statement)

    def loop(self, target: ast.expr, items: ast.expr, body: list[ast.stmt]) -> Iterator[Refusal]:
        """Once for every item where the code says which there are, else once."""
        try:
            known = list(eval(ast.unparse(items), self._module))  # noqa: S307 # our own code
        except NameError:
            known = [None]
        for item in known:
            if item is not None:
                unpacked = zip(target.elts, item, strict=True) if isinstance(target, ast.Tuple) else [(target, item)]
                self._texts |= {ast.unparse(name): str(value) for name, value in unpacked}
            yield from self.block(body)

    def calls(self, node: ast.AST) -> Iterator[Refusal]:
        for call in (inner for inner in ast.walk(node) if isinstance(inner, ast.Call)):
            called = self._module.get(call.func.id) if isinstance(call.func, ast.Name) else None
            if called is require:
                yield self.text(call.args[0]), self.text(call.args[2])
            elif isinstance(called, FunctionType) and called.__module__.startswith("specfw."):
                arguments = zip(inspect.signature(called).parameters, call.args, strict=False)
                yield from refusals(called, {name: self.text(value) for name, value in arguments})

    def text(self, node: ast.expr) -> str:
        """`node` as the reader of a refusal would see it; what only a value could tell keeps its name."""
        match node:
            case ast.JoinedStr(values):
                return "".join(self.text(value) for value in values)
            case ast.FormattedValue(value):
                return self.text(value)
            case ast.Name(name) if name in self._texts:
                return self._texts[name]
            case ast.Attribute(value=ast.Name("self"), attr=field):
                return field
        try:
            return str(eval(ast.unparse(node), self._module))  # noqa: S307 # our own code
        except (NameError, TypeError):
            return ast.unparse(node).replace("self.", "")
