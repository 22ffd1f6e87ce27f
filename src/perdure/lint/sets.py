"""Iteration over sets: strings hash differently in each process, so the order is another one on replay."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perdure.lint.module import Function, Module, own_nodes

_SAME_ORDER = {"list", "tuple", "iter", "enumerate", "reversed"}
"""Functions whose result comes in the order of their argument."""


def ordered_by_a_set(module: Module, function: Function) -> Iterator[tuple[ast.AST, str, str]]:
    names = _names(function)
    for node in own_nodes(function):
        for iterated in _iterated(node):
            if _is_set(iterated, names):
                yield iterated, "set-order", f"iteration over {ast.unparse(iterated)[:60]}"


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield node.iter
    elif isinstance(node, ast.Call):
        yield from (argument.value for argument in node.args if isinstance(argument, ast.Starred))


def _names(function: Function) -> set[str]:
    """Names that the function gives to sets."""
    names: set[str] = set()
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.annotation is not None and _is_set_type(argument.annotation):
            names.add(argument.arg)
    for node in own_nodes(function):
        if isinstance(node, ast.Assign) and _is_set(node.value, names):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_set_type(node.annotation):
            names.add(node.target.id)
    return names


def _is_set_type(annotation: ast.expr) -> bool:
    return ast.unparse(annotation).partition("[")[0] in ("set", "frozenset")


def _is_set(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, names) or _is_set(right, names)
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in _SAME_ORDER:
            return _is_set(argument, names)
        case ast.Call(func=ast.Attribute(value=value, attr="union" | "intersection" | "difference" | "copy")):
            return _is_set(value, names)
        case _:
            return False
