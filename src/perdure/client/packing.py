"""A body as the bytes that travel; a value that cannot travel is named by its path."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.client.transport import pack
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument, PayloadTooLarge
from perdure.core.limits import MAX_BODY

_FAULTS = (TypeError, ValueError, OverflowError)


def packed(body: m.Body) -> bytes:
    """InvalidArgument for text that UTF-8 cannot carry, integers beyond 64 bits, and what is no value of the
    protocol."""
    try:
        data = pack(body)
    except _FAULTS as fault:
        path, value = _at_fault(body, "")
        kind = type(value).__name__
        raise InvalidArgument(
            f"{path} cannot be sent: {fault}", field=path, limit="text that UTF-8 can carry, 64-bit integers", kind=kind
        ) from None
    if len(data) > MAX_BODY:
        raise PayloadTooLarge(f"the request has {len(data)} bytes", field="body", limit=f"{MAX_BODY} bytes")
    return data


def _at_fault(value: object, path: str) -> tuple[str, object]:
    """The innermost part that cannot be packed, and its path."""
    for where, part in _parts(value, path):
        try:
            pack(part)
        except _FAULTS:
            return _at_fault(part, where)
    return path, value


def _parts(value: object, path: str) -> Iterable[tuple[str, object]]:
    match value:
        case msgspec.Struct():
            return [(f"{path}.{name}" if path else name, getattr(value, name)) for name in value.__struct_fields__]
        case dict():
            return [(f"{path}.{name}", part) for name, part in value.items()]
        case list() | tuple():
            return [(f"{path}[{index}]", part) for index, part in enumerate(value)]
        case _:
            return ()
