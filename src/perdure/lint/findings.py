"""Looks through the source of workflows; nothing of it is imported or run.

A comment `# perdure: allow RULE` (or several, with commas) at the end of a line lets that line be.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from typing import NamedTuple

from perdure.lint.module import Function, Module, own_nodes
from perdure.lint.rules import ADVICE, rule_of, rule_of_method
from perdure.lint.sagas import uncompensated
from perdure.lint.sets import ordered_by_a_set
from perdure.lint.swallows import swallows

_ALLOW = re.compile(r"#\s*perdure:\s*allow\s+([\w\-]+(?:\s*,\s*[\w\-]+)*)")
_WAITS = ("wait_for_signal", "wait_for_event", "wait_condition")
Found = Iterator[tuple[ast.AST, str, str]]
"""Where, by which rule, and what it is, in words."""


class Finding(NamedTuple):
    """`file` is as it was given; `line` counts from 1."""

    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def findings(source: str, file: str) -> list[Finding]:
    """All of one file, by line. SyntaxError for what is no Python."""
    module = Module(ast.parse(source, file))
    allowed = _allowed(source)
    found = {
        Finding(file, line, rule, f"{what}: {ADVICE[rule]}")
        for function in module.code()
        for look in _LOOKS
        for node, rule, what in look(module, function)
        if rule not in allowed.get(line := getattr(node, "lineno", function.lineno), ())
    }
    return sorted(found)


def _allowed(source: str) -> dict[int, set[str]]:
    """Line -> the rules that a comment on it lets be broken."""
    allowed = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (match := _ALLOW.match(token.string)):
            allowed[token.start[0]] = {rule.strip() for rule in match[1].split(",")}
    return allowed


# --------------------------------------------------------------------------------------------------------------- looks
def _calls(module: Module, function: Function) -> Found:
    for node in own_nodes(function):
        if not isinstance(node, ast.Call):
            continue
        name = module.name(node.func)
        if name == "random.Random" and node.args:
            continue  # with a seed it gives the same numbers again
        if name is not None and (rule := rule_of(name)):
            yield node, rule, f"{name}()"
        elif name is None and isinstance(node.func, ast.Attribute) and (rule := rule_of_method(node.func.attr)):
            yield node, rule, f".{node.func.attr}()"
        elif module.is_task(node.func):
            yield node, "side-effect", f"the @task {ast.unparse(node.func)} is called here and now"


def _globals(module: Module, function: Function) -> Found:
    for node in own_nodes(function):
        if isinstance(node, ast.Global):
            yield node, "side-effect", f"the global {', '.join(node.names)} is changed"


def _waits(module: Module, function: Function) -> Found:
    limited = _within_time_outs(module, function)
    for node in own_nodes(function):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node in limited:
            continue
        if node.func.attr in _WAITS and not _has_timeout(node) and not _is_of_handlers(node):
            yield node, "no-timeout", f"{node.func.attr}()"


def _has_timeout(call: ast.Call) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg in ("timeout", None)] + call.args[1:]
    return any(not (isinstance(value, ast.Constant) and value.value is None) for value in given)


def _is_of_handlers(call: ast.Call) -> bool:
    """`wait_condition(ctx.all_handlers_finished)`: those have time-outs of their own."""
    return bool(call.args) and isinstance(call.args[0], ast.Attribute) and call.args[0].attr == "all_handlers_finished"


def _within_time_outs(module: Module, function: Function) -> set[ast.AST]:
    """What is inside of `asyncio.wait_for(...)` or `async with asyncio.timeout(...)`."""
    return {
        inside
        for node in own_nodes(function)
        for limit in ([item.context_expr for item in node.items] if isinstance(node, ast.AsyncWith) else [node])
        if isinstance(limit, ast.Call) and module.name(limit.func) in _TIME_OUTS[type(node)]
        for inside in ast.walk(node)
    }


_TIME_OUTS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Call: ("asyncio.wait_for",),
    ast.AsyncWith: ("asyncio.timeout", "asyncio.timeout_at"),
}
_LOOKS: tuple[Callable[[Module, Function], Found], ...] = (
    _calls, _globals, _waits, ordered_by_a_set, uncompensated, swallows,
)  # fmt: skip
