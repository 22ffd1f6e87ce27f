"""A search query as a tree: what it means, whatever text or database it meets.

A few kinds of nodes say it all, because `query_text.py` writes the rest in terms of them: `x != 1` is "x is present and
not x = 1", BETWEEN is two comparisons. Logic has two values: a comparison with a field that has no value is false, and
NOT turns around whatever it stands before. A field may have several values (a KeywordList); it passes a test if any of
them does.

`passes` is the meaning. Databases are asked by SQL that store/search.py makes of the same tree, and compared with it.
Trees are plain values, so an action on many tasks carries its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from perdure.core.states import State, is_closed

Value = bool | int | str | bytes
"""What columns hold; of attributes the key of a value (search_keys.py)."""


class Column(msgspec.Struct, frozen=True, tag="column"):
    """A field that every row has; see search_fields.py."""

    name: str


class Attribute(msgspec.Struct, frozen=True, tag="attribute"):
    """A search attribute."""

    name: str


Field = Column | Attribute


class And(msgspec.Struct, frozen=True, tag="and"):
    parts: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True, tag="or"):
    parts: tuple[Node, ...]


class Not(msgspec.Struct, frozen=True, tag="not"):
    part: Node


class Present(msgspec.Struct, frozen=True, tag="present"):
    """The field has a value."""

    field: Field


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    """`op` is one of OPERATORS."""

    field: Field
    op: str
    value: Any  #: a Value: as such msgspec could not read it, because text and bytes are one kind to it


class OneOf(msgspec.Struct, frozen=True, tag="one_of"):
    field: Field
    values: tuple[Any, ...]


class Within(msgspec.Struct, frozen=True, tag="within"):
    """One value of the field is at least `low` and, unless that is None, below `below`."""

    field: Field
    low: Any
    below: Any


Node = And | Or | Not | Present | Compare | OneOf | Within
Test = Present | Compare | OneOf | Within

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

CLOSED_ONLY = frozenset({"closed_at", "error", "group", "retried", "owed", "work_time", "run_time"})
"""Columns without a value in open rows."""

_OPEN = tuple(state for state in State if not is_closed(state))
_CLOSED = tuple(state for state in State if is_closed(state))


def both(*nodes: Node | None) -> Node | None:
    """All of them must pass; None passes everything."""
    parts = tuple(part for node in nodes if node is not None for part in conjuncts(node))
    return And(parts) if len(parts) > 1 else parts[0] if parts else None


def conjuncts(node: Node | None) -> tuple[Node, ...]:
    """What must pass, each on its own."""
    if node is None:
        return ()
    return node.parts if isinstance(node, And) else (node,)


def passes(node: Node | None, values: Callable[[Field], Collection[Value]]) -> bool:
    """Whether a row passes of which `values` tells the values of a field."""
    match node:
        case None:
            return True
        case And(parts):
            return all(passes(part, values) for part in parts)
        case Or(parts):
            return any(passes(part, values) for part in parts)
        case Not(part):
            return not passes(part, values)
        case _:
            return any(_holds(node, value) for value in values(node.field))


def _holds(test: Test, value: Any) -> bool:
    match test:
        case Compare(_, op, wanted):
            return OPERATORS[op](value, wanted)
        case OneOf(_, wanted):
            return value in wanted
        case Within(_, low, below):
            return bool(low <= value and (below is None or value < below))
        case Present():
            return True


def possible(node: Node | None, *, closed: bool) -> bool:
    """False where no open, or no closed, row can pass, which saves a look at its table."""
    match node:
        case And(parts):
            return all(possible(part, closed=closed) for part in parts)
        case Or(parts):
            return any(possible(part, closed=closed) for part in parts)
        case Not(part):
            about_state = not isinstance(part, And | Or | Not) and part.field == Column("state")
            return not about_state or any(not passes(part, _state(one)) for one in (_CLOSED if closed else _OPEN))
        case None:
            return True
    if node.field == Column("state"):
        return any(passes(node, _state(one)) for one in (_CLOSED if closed else _OPEN))
    return closed or not isinstance(node.field, Column) or node.field.name not in CLOSED_ONLY


def _state(state: State) -> Callable[[Field], Collection[Value]]:
    return lambda _field: (int(state),)


def tests(node: Node | None) -> Iterator[Test]:
    """Every test of a tree."""
    match node:
        case And(parts) | Or(parts):
            for part in parts:
                yield from tests(part)
        case Not(part):
            yield from tests(part)
        case None:
            return
        case _:
            yield node
