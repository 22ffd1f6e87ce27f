"""From the text of a query to its tree: sqlglot parses, and what it made is taken over node by node from a short list.

Fields, operators and values are checked by search_fields.py. Whatever is wrong is an InvalidArgument that says at which
character, what is expected there, and which name may have been meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from perdure.core import failures, ids, limits, search_keys
from perdure.core.durations import seconds
from perdure.core.errors import InvalidArgument
from perdure.core.model import SECOND
from perdure.core.query import (
    And,
    Attribute,
    Column,
    Compare,
    Field,
    Node,
    Not,
    OneOf,
    Or,
    Present,
    Value,
    Within,
    both,
)
from perdure.core.query_grammar import MAX_CHARACTERS, refused, shown, start, tokens, tree
from perdure.core.search_fields import (
    FIELDS,
    FIRST_COME,
    KNOWN,
    LAST_CLOSED,
    STATES,
    STATUSES,
    TAKES,
    Type,
    plain,
)
from perdure.core.states import Kind

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NAMES: Mapping[Kind, str] = {Kind.JOB: "tasks", Kind.WORKFLOW: "workflows"}


class Query(msgspec.Struct, frozen=True):
    """What a text asks for. `by_close` and `ascending` are those of search.Search."""

    where: Node | None = None
    by_close: bool = False
    ascending: bool = False


def parse(text: str, kind: Kind, attributes: Mapping[str, Type]) -> Query:
    """A query about tasks (JOB) or workflow runs (WORKFLOW) of a namespace that has registered these attributes; jobs
    have none. Nothing but white space asks for everything."""
    limits.text(text, "query", MAX_CHARACTERS)
    found = tokens(text)
    at = next((n for n, token in enumerate(found) if token.token_type == TokenType.ORDER_BY), len(found))
    reader = _Reader(kind, attributes)
    where = reader.node(tree(found[:at], text)) if at else None
    return _ordered(where, kind, found[at + 1 :], text) if at < len(found) else Query(where)


def _ordered(where: Node | None, kind: Kind, found: Sequence[Token], text: str) -> Query:
    """With what stands behind ORDER BY."""
    known = (FIRST_COME[kind], LAST_CLOSED)
    expected = f"{' or '.join(known)}, then ASC or DESC or nothing"
    if not found:
        raise refused(len(text), "it ends too early", expected)
    field, *direction = found
    if field.text not in known:
        raise refused(field.start, f"lists are not ordered by {field.text!r}{_meant(field.text, known)}", expected)
    if direction and direction[0].token_type not in (TokenType.ASC, TokenType.DESC):
        raise refused(direction[0].start, f"{direction[0].text!r} cannot stand here", expected)
    if len(direction) > 1:
        raise refused(direction[1].start, "lists are ordered by one field", expected)
    ascending = not direction or direction[0].token_type == TokenType.ASC
    return Query(where, field.text == LAST_CLOSED, ascending)


class _Reader:
    """Takes over what sqlglot made, as the fields of a kind and of a namespace have it."""

    def __init__(self, kind: Kind, attributes: Mapping[str, Type]) -> None:
        self._kind = kind
        self._attributes = {**attributes, **KNOWN} if kind == Kind.WORKFLOW else {}

    def node(self, node: exp.Expr) -> Node:
        match node:
            case exp.And():
                return And(tuple(part for one in node.flatten(unnest=False) for part in _parts(self.node(one), And)))
            case exp.Or():
                return Or(tuple(part for one in node.flatten(unnest=False) for part in _parts(self.node(one), Or)))
            case exp.Not():
                part = self.node(node.this)
                return part.part if isinstance(part, Not) else Not(part)
            case exp.Paren():
                return self.node(node.this)
            case exp.In():
                return self._one_of(node)
            case exp.Between():
                field, found = self._field(node.this, "BETWEEN")
                if node.args.get("symmetric") is not None:
                    raise refused(start(node), "BETWEEN asks for two values", "BETWEEN VALUE AND VALUE")
                low, high = (_value(node.args[end], field, found) for end in ("low", "high"))
                return _and(Compare(field, ">=", low), Compare(field, "<=", high))
            case exp.Glob():
                return self._prefix(node)
            case exp.Is() if isinstance(node.expression, exp.Null):
                return Not(Present(self._field(node.this, "IS")[0]))
            case exp.Is():
                raise refused(start(node.this), "IS asks for NULL only", "IS NULL, IS NOT NULL")
        if type(node) in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[type(node)])
        raise refused(start(node), f"{shown(node)} is no condition", "FIELD OPERATOR VALUE")

    # fields --------------------------------------------------------------------------------------------------------
    def _field(self, node: exp.Expr, operator: str) -> tuple[Field, Type]:
        """A field that takes an operator."""
        at = start(node)
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.args.get("table"):
            raise refused(at, f"{shown(node)} is not a field", "the name of a field on the left")
        name = node.name
        definition = FIELDS.get(name)
        field: Field
        if definition is not None and (column := definition.column(self._kind)):
            field, type = Column(column), definition.type
        elif name in self._attributes:
            field, type = Attribute(name), self._attributes[name]
        else:
            raise self._unknown(name, at)
        if operator not in TAKES[type]:
            expected = ", ".join(sorted(TAKES[type]))
            raise refused(at, f"{name} is {type.value} and does not take {operator}", expected)
        return field, type

    def _unknown(self, name: str, at: int) -> InvalidArgument:
        if name in FIELDS:
            other = Kind.WORKFLOW if self._kind == Kind.JOB else Kind.JOB
            return refused(at, f"{name} is a field of {_NAMES[other]}", f"a field of {_NAMES[self._kind]}")
        of_kind = [known for known, definition in FIELDS.items() if definition.column(self._kind)]
        known = [*of_kind, *self._attributes]
        meant = _meant(name, known)
        what = f"{_NAMES[self._kind]} have no field {name[:50]!r}{meant}"
        if self._kind == Kind.WORKFLOW and not meant:
            what += "; a search attribute must be registered before queries name it"
        return refused(at, what, ", ".join(known))

    # tests ---------------------------------------------------------------------------------------------------------
    def _comparison(self, node: exp.Expr, op: str) -> Node:
        field, type = self._field(node.this, op)
        if isinstance(node.expression, exp.Null):
            raise refused(start(node.this), f"{op} does not ask for NULL", "IS NULL, IS NOT NULL")
        if op == "!=":
            return _and(Present(field), Not(self._equal(field, type, node.expression)))
        if op == "=":
            return self._equal(field, type, node.expression)
        return Compare(field, op, _value(node.expression, field, type))

    def _equal(self, field: Field, type: Type, node: exp.Expr) -> Node:
        if type is Type.TEXT:
            words = search_keys.words(_text(node, type))
            if not words:
                raise refused(start(node), "there is no word in it", "at least one word")
            tests = [OneOf(field, search_keys.word(word)) for word in words]
            return _and(*tests)
        return _any(field, _values(node, field, type))

    def _one_of(self, node: exp.In) -> Node:
        field, type = self._field(node.this, "IN")
        if not node.expressions:
            raise refused(start(node), "IN asks for a list", "(VALUE, VALUE, ...)")
        return _any(field, [value for one in node.expressions for value in _values(one, field, type)])

    def _prefix(self, node: exp.Glob) -> Node:
        field, type = self._field(node.this, "STARTS_WITH")
        text = _text(node.expression, type)
        if isinstance(field, Attribute):
            if len(text.encode()) > search_keys.MAX_PREFIX:
                most = f"at most {search_keys.MAX_PREFIX} bytes"
                raise refused(start(node.expression), "the beginning is too long", most)
            return Within(field, *search_keys.prefix(text))
        return Within(field, text, _behind(text))


def _values(node: exp.Expr, field: Field, type: Type) -> Sequence[Value]:
    """What a value stands for: several states for a status such as Running."""
    if type not in (Type.STATE, Type.STATUS):
        return [_value(node, field, type)]
    words = STATES if type is Type.STATE else STATUSES
    text = _text(node, type)
    for word, found in words.items():
        if plain(word) == plain(text):
            return found
    raise refused(start(node), f"there is no {type.value} {text[:50]!r}{_meant(text, words)}", ", ".join(words))


def _value(node: exp.Expr, field: Field, type: Type) -> Value:
    """A value as the column has it, or as the key of an attribute."""
    value = _READERS[type](node, type)
    return _KEYS[type](value) if isinstance(field, Attribute) else value


def _text(node: exp.Expr, type: Type) -> str:
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    raise _wrong(node, type, "a text between quotes")


def _whole(node: exp.Expr, type: Type) -> int:
    number = _number(node, type)
    if not isinstance(number, int) or not -(2**63) <= number < 2**63:
        raise _wrong(node, type, "a whole number of 64 bits")
    return number


def _number(node: exp.Expr, type: Type) -> int | float:
    sign, literal = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if isinstance(literal, exp.Literal) and not literal.is_string:
        text = str(literal.this)
        with suppress(ValueError):
            return sign * int(text)
        with suppress(ValueError):
            return sign * float(text)
    raise _wrong(node, type, "a number")


def _truth(node: exp.Expr, type: Type) -> bool:
    if not isinstance(node, exp.Boolean):
        raise _wrong(node, type, "true or false")
    return bool(node.this)


def _moment(node: exp.Expr, type: Type) -> int:
    """Microseconds of a date and time with an offset, or of the beginning of a day in UTC."""
    text = _text(node, type)
    moment = search_keys.moment_of(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)
    if moment is None:
        raise _wrong(node, type, "a day, 2026-11-30, or a time with an offset, 2026-11-30T09:00:00Z")
    return moment


def _duration(node: exp.Expr, type: Type) -> int:
    try:
        return round(seconds(_text(node, type), "query") * SECOND)
    except InvalidArgument:
        raise _wrong(node, type, 'a duration between quotes, such as "90s" or "1h30m"') from None


def _id(node: exp.Expr, type: Type) -> bytes:
    try:
        return ids.parse(_text(node, type))
    except InvalidArgument:
        raise _wrong(node, type, "an id, which is a UUID") from None


def _group(node: exp.Expr, type: Type) -> int:
    try:
        return failures.parse_group(_text(node, type))
    except InvalidArgument:
        raise _wrong(node, type, "16 hexadecimal digits") from None


def _wrong(node: exp.Expr, type: Type, expected: str) -> InvalidArgument:
    kind = "str" if isinstance(node, exp.Literal) and node.is_string else "number"
    return refused(start(node), f"{shown(node)} is no {type.value}", expected, kind)


_READERS: dict[Type, Callable[[exp.Expr, Type], Any]] = {
    Type.KEYWORD: _text,
    Type.KEYWORD_LIST: _text,
    Type.INT: _whole,
    Type.DOUBLE: _number,
    Type.BOOL: _truth,
    Type.DATETIME: _moment,
    Type.DURATION: _duration,
    Type.ID: _id,
    Type.GROUP: _group,
}
_KEYS: dict[Type, Callable[[Any], bytes]] = {
    Type.KEYWORD: search_keys.text,
    Type.KEYWORD_LIST: search_keys.text,
    Type.INT: search_keys.number,
    Type.DOUBLE: search_keys.number,
    Type.BOOL: search_keys.truth,
    Type.DATETIME: search_keys.time,
}


def _behind(text: str) -> str | None:
    """The first text behind all that begin with `text`; None where there is none."""
    for at in reversed(range(len(text))):
        code = ord(text[at])
        if code < 0x10FFFF:
            return text[:at] + chr(0xE000 if code == 0xD7FF else code + 1)  # over what no text holds
    return None


def _any(field: Field, values: Sequence[Value]) -> Node:
    return Compare(field, "=", values[0]) if len(values) == 1 else OneOf(field, tuple(values))


def _and(*nodes: Node) -> Node:
    joined = both(*nodes)
    assert joined is not None
    return joined


def _parts(node: Node, joined: type[And | Or]) -> tuple[Node, ...]:
    """What stands between parentheses is one of the parts around them, where both are joined alike."""
    return node.parts if isinstance(node, And | Or) and type(node) is joined else (node,)


def _meant(name: str, known: Collection[str]) -> str:
    folded = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(name[:100].casefold(), folded, 1)
    return f"; did you mean {folded[close[0]]}?" if close else ""
