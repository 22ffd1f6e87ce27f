"""Whatever arrives is either a body or an InvalidArgument that says where it is wrong."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api.codec import JSON, MSGPACK, Codec, invalid
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument

NAMES = sorted({name for body, _ in m.OPS.values() for name in body.__struct_fields__} | {"type", "lease", "x"})
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=20,
)


@pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])
@given(op=st.sampled_from(sorted(m.OPS)), value=VALUES)
def test_any_value(codec: Codec, op: str, value: object) -> None:
    try:
        body = codec.decode(op, codec.encode(value))
    except InvalidArgument as error:
        assert error.detail
    else:
        assert isinstance(body, m.OPS[op][0])
        assert codec.decode(op, codec.encode(body)) == body


@pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])
@given(op=st.sampled_from(sorted(m.OPS)), data=st.binary(max_size=60))
def test_any_bytes(codec: Codec, op: str, data: bytes) -> None:
    try:
        assert isinstance(codec.decode(op, data), m.OPS[op][0])
    except InvalidArgument as error:
        assert error.detail


@pytest.mark.parametrize(
    ("said", "field", "kind"),
    [
        ("Expected `int`, got `str` - at `$.capacity`", "capacity", "str"),
        ("Object missing required field `type` - at `$.tasks[0]`", "tasks[0].type", None),
        ("Object contains unknown field `x`", "x", None),
        ("Expected `object`, got `array`", None, "array"),
        ("Input data was truncated", None, None),
    ],
)
def test_the_field_is_read_from_the_words_of_msgspec(said: str, field: str | None, kind: str | None) -> None:
    error = invalid(said)
    assert (error.field, error.kind) == (field, kind)


def test_these_are_the_words_of_msgspec() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^Expected `int`, got `str` - at `\$\.capacity`$"):
        msgspec.json.decode(b'{"incarnation":1,"poll":1,"queues":[],"capacity":"x"}', type=m.Poll)
