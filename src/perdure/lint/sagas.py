"""Steps of a saga without a compensation (SAGA-09)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perdure.lint.module import Function, Module, own_nodes

_FORWARD = {"step", "execute_activity", "start_activity", "execute_child", "start_child", "parallel"}


def uncompensated(module: Module, function: Function) -> Iterator[tuple[ast.AST, str, str]]:
    """From `ctx.saga()` to `saga.pivot()` or the end, each step needs an `add_compensation` of its own, right before it
    or right behind; but not the last one, after which nothing can fail. What stands in an `except` or a `finally` is
    clean-up."""
    begun = False
    waiting = 0  #: compensations whose step has not come yet
    last: ast.Call | None = None  #: the last step, if it has none yet
    for call, method in _calls(function):
        if method == "saga":
            begun = True
        elif not begun:
            continue
        elif method == "pivot":
            break
        elif method == "add_compensation":
            if last is None:
                waiting += 1
            last = None
        elif method in _FORWARD:
            if last is not None:
                yield last, "no-compensation", ast.unparse(last.func)
            last = None if waiting else call
            waiting = max(0, waiting - 1)


def _calls(function: Function) -> list[tuple[ast.Call, str]]:
    """Calls of methods, in the order of the source, but for clean-up."""
    clean_up: set[ast.AST] = set()
    for node in own_nodes(function):
        if isinstance(node, ast.Try):
            for statement in (*node.handlers, *node.finalbody):
                clean_up.update(ast.walk(statement))
    calls = [
        (node, node.func.attr)
        for node in own_nodes(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in clean_up
    ]
    return sorted(calls, key=lambda call: (call[0].lineno, call[0].col_offset))
