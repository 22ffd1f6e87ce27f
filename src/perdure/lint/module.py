"""A module as its source tells: what names mean in it, and which of its functions are workflow code.

Workflow code is a function decorated with `@workflow`, every method of a class decorated so, and one level of helpers:
functions of the same module that such code calls by name, and functions within it that it calls or registers as
handlers. What they call in turn is not followed, and neither is another module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_REGISTER = {"on_signal", "on_query", "on_update", "wait_condition"}
"""Methods of ctx whose arguments are called in workflow code."""
_DETACHED = {"step", "side_effect", "parallel", "add_compensation"}
"""Methods whose arguments are called elsewhere, or once."""


class Module:
    """One source file."""

    def __init__(self, tree: ast.Module) -> None:
        self._imports = dict(_imports(tree))
        self._functions = {node.name: node for node in tree.body if isinstance(node, FUNCTIONS)}
        self._tasks = {name for name, node in self._functions.items() if any(map(self._is_task, node.decorator_list))}
        self._tree = tree

    def code(self) -> list[Function]:
        """The functions that are workflow code, in the order of the source."""
        found: dict[Function, None] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, FUNCTIONS) and self._is_workflow(node):
                found[node] = None
            elif isinstance(node, ast.ClassDef) and self._is_workflow(node):
                found.update((each, None) for each in node.body if isinstance(each, FUNCTIONS))
        for function in list(found):
            found.update((helper, None) for helper in self._helpers(function))
        return sorted(found, key=lambda function: function.lineno)

    def name(self, node: ast.expr) -> str | None:
        """In full: "time.sleep" for `sleep` after `from time import sleep`. None for what is no name, or belongs to an
        object that the source does not tell."""
        if isinstance(node, ast.Name):
            return self._imports.get(node.id, node.id if node.id in ("open", "input") else None)
        if isinstance(node, ast.Attribute) and (owner := self.name(node.value)) is not None:
            return f"{owner}.{node.attr}"
        return None

    def is_task(self, node: ast.expr) -> bool:
        """Whether it names a @task of this module."""
        return isinstance(node, ast.Name) and node.id in self._tasks

    def _is_task(self, decorator: ast.expr) -> bool:
        return self._is_decorator(decorator, "task")

    def _is_workflow(self, node: Function | ast.ClassDef) -> bool:
        return any(self._is_decorator(decorator, "workflow") for decorator in node.decorator_list)

    def _is_decorator(self, node: ast.expr, kind: str) -> bool:
        """`@kind` or `@kind(...)`, imported from perdure under whatever name."""
        node = node.func if isinstance(node, ast.Call) else node
        name = self.name(node) or ""
        return name.startswith("perdure.") and name.endswith(f".{kind}")

    def _helpers(self, function: Function) -> Iterator[Function]:
        inner = {node.name: node for node in ast.walk(function) if isinstance(node, FUNCTIONS) and node is not function}
        known = self._functions | inner
        for node in own_nodes(function):
            if not isinstance(node, ast.Call):
                continue
            named = [node.func]
            if isinstance(node.func, ast.Attribute) and node.func.attr in _REGISTER:
                named += [*node.args, *(keyword.value for keyword in node.keywords)]
            for each in named:
                if isinstance(each, ast.Name) and each.id in known and each.id not in self._tasks:
                    yield known[each.id]


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """What runs as a part of this function, in the order of the source: without functions and classes that are defined
    in it, and without lambdas that it hands to a step."""
    for statement in function.body:
        yield from _own(statement)


def _own(node: ast.AST, *, detached: bool = False) -> Iterator[ast.AST]:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)) or (detached and isinstance(node, ast.Lambda)):
        return
    yield node
    away = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DETACHED
    for child in ast.iter_child_nodes(node):
        yield from _own(child, detached=detached or away)


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that stand for something of another module, wherever they are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
