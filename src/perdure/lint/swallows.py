"""Code that catches what suspends it while it waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perdure.lint.module import FUNCTIONS, Function, Module, own_nodes

_DURABLE = {
    "step", "execute_activity", "start_activity", "parallel", "sleep", "wait_condition", "wait_for_signal",
    "wait_for_event", "signal_workflow", "cancel_workflow", "start_child", "execute_child", "continue_as_new",
    "compensate", "result",
}  # fmt: skip
_JUMPS = (ast.Return, ast.Break, ast.Continue)


def swallows(module: Module, function: Function) -> Iterator[tuple[ast.AST, str, str]]:
    for node in own_nodes(function):
        if isinstance(node, (ast.Try, ast.TryStar)) and _waits(node.body):
            for handler in node.handlers:
                if _catches_all(handler.type) and not _raises(handler.body):
                    what = "a bare `except:`" if handler.type is None else "`except BaseException`"
                    yield handler, "swallow", what
            for statement in node.finalbody:
                if jump := next((each for each in _walk(statement) if isinstance(each, _JUMPS)), None):
                    yield jump, "swallow", f"`{ast.unparse(jump).split()[0]}` in a `finally`"
        elif isinstance(node, (ast.With, ast.AsyncWith)) and _waits(node.body):
            for call in (item.context_expr for item in node.items):
                suppressed = isinstance(call, ast.Call) and module.name(call.func) == "contextlib.suppress"
                if isinstance(call, ast.Call) and suppressed and any(map(_catches_all, call.args)):
                    yield call, "swallow", "suppress(BaseException)"


def _waits(body: Sequence[ast.stmt]) -> bool:
    return any(
        isinstance(node, ast.Await)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DURABLE)
        for statement in body
        for node in _walk(statement)
    )


def _catches_all(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(map(_catches_all, kind.elts))
    return kind is None or (isinstance(kind, ast.Name) and kind.id == "BaseException")


def _raises(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Raise) for statement in body for node in _walk(statement))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Without functions that are defined there."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)
