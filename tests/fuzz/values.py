"""Values of any type of the protocol, made from the type alone, so that what is added to it is fuzzed as well."""

from __future__ import annotations

import types
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

Strategy = st.SearchStrategy[Any]
Named = Mapping[str, Strategy]
"""What a field of this name mostly holds, wherever it stands."""

_FLAT: dict[Any, Strategy] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(0, 5) | st.integers(-(2**63), 2**64 - 1),
    float: st.floats(0, 100) | st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=8),
    bytes: st.binary(max_size=12),
    datetime: st.datetimes(timezones=st.just(UTC)),
}
_FLAT[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | _FLAT[float] | _FLAT[str],
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def of(kind: Any, named: Named | None = None) -> Strategy:
    """Any value of a type. Fields in `named` hold what it says in four cases of five."""
    return _of(kind, named or {}, {})


def _of(kind: Any, named: Named, known: dict[Any, Strategy]) -> Strategy:
    origin, args = get_origin(kind), get_args(kind)
    if kind in _FLAT:
        return _FLAT[kind]
    if origin in (Union, types.UnionType):
        return st.one_of(_of(arg, named, known) for arg in args)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is not ...:
        return st.tuples(*(_of(arg, named, known) for arg in args))
    if origin in (list, tuple):
        items = st.lists(_of(args[0], named, known), max_size=3)
        return items if origin is list else items.map(tuple)
    if origin is dict:
        return st.dictionaries(_of(args[0], named, known), _of(args[1], named, known), max_size=2)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    return _struct(kind, named, known)


def _struct(kind: type[msgspec.Struct], named: Named, known: dict[Any, Strategy]) -> Strategy:
    if kind not in known:
        known[kind] = st.deferred(lambda: made)
        hints = get_type_hints(kind)
        required = {field.name for field in msgspec.structs.fields(kind) if field.required}

        def field(name: str) -> Strategy:
            wild = _of(hints[name], named, known)
            return st.integers(0, 4).flatmap(lambda n: named[name] if n else wild) if name in named else wild

        made = st.fixed_dictionaries(
            {name: field(name) for name in kind.__struct_fields__ if name in required},
            optional={name: field(name) for name in kind.__struct_fields__ if name not in required},
        ).map(lambda fields: kind(**fields))
    return known[kind]
