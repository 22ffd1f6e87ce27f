"""Bodies to bytes and back, with faults that name the field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core import messages as m
from perdure.core.errors import InvalidArgument, PerdureError
from perdure.core.limits import encodable

_FAULT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_NAMED = re.compile(r"(?:required|unknown) field `([^`]*)`")
_TYPES = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_MOST_LOCATED = 1 << 20
"""Bytes of a body that is read once more to say where its fault is."""


class MethodNotAllowed(InvalidArgument):
    code, title, status = "method_not_allowed", "Method not allowed", 405


def invalid(fault: str, path: str | None = None) -> InvalidArgument:
    """The error for what msgspec says of a body that is malformed, truncated, of wrong types, or has unknown or missing
    fields; `path` is where, if that is not in its words."""
    match = _FAULT.fullmatch(fault)
    what, found = (match["what"], match["path"]) if match else (fault, None)
    path = found or (None if path == "data" else path)
    named, types = _NAMED.search(what), _TYPES.search(what)
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
    limit, kind = (types[1], types[2]) if types else (None, None)
    return InvalidArgument(what[:300], field=path, limit=limit, kind=kind)


def unreadable(fault: Exception, data: bytes) -> InvalidArgument:
    """The error for a JSON body that a decoder refused. A value that other JSON libraries write and read although it is
    none (NaN, Infinity, half a surrogate pair) is looked for, so that its field can be named."""
    if isinstance(fault, RecursionError):
        return InvalidArgument("the body is nested too deeply", field="payload", limit="500 levels")
    error = invalid(str(fault))
    if error.field is None and not isinstance(fault, msgspec.ValidationError) and (path := _locate(data)):
        error = InvalidArgument(
            f"{path} is no JSON value", field=path, limit="finite numbers and text that UTF-8 can carry"
        )
    return error


def _locate(data: bytes) -> str | None:
    """The path of the first value that is not JSON, if all else is."""
    if len(data) > _MOST_LOCATED:
        return None
    try:
        return _not_json(json.loads(data), "")
    except (ValueError, RecursionError):
        return None


def _not_json(value: object, path: str) -> str | None:
    match value:
        case dict():
            parts = [(f"{path}.{key}" if path else key, part) for key, part in value.items()]
            if not all(map(encodable, value)):
                return path or "body"
        case list():
            parts = [(f"{path}[{index}]", part) for index, part in enumerate(value)]
        case str():
            return None if encodable(value) else path or "body"
        case float():
            return None if math.isfinite(value) else path or "body"
        case _:
            return None
    return next((found for where, part in parts if (found := _not_json(part, where)) is not None), None)


class Codec:
    """An encoding of the wire protocol: MessagePack or JSON."""

    def __init__(self, content_type: str, problem_type: str, encode: Callable[[Any], bytes], decoder: Any) -> None:
        self.content_type = content_type.encode()
        self.problem_type = problem_type.encode()
        self.encode = encode
        self._decoders = {op: decoder(body).decode for op, (body, _) in m.OPS.items()}

    def decode(self, op: str, data: bytes | msgspec.Raw) -> m.Body:
        """The body of a request for a known `op`; InvalidArgument names the field."""
        try:
            body: m.Body = self._decoders[op](data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            raise (unreadable(fault, bytes(data)) if self is JSON else invalid(str(fault))) from None
        return body


MSGPACK = Codec("application/msgpack", "application/msgpack", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder)
JSON = Codec("application/json", "application/problem+json", msgspec.json.Encoder().encode, msgspec.json.Decoder)


def problem_headers(error: PerdureError) -> list[tuple[bytes, bytes]]:
    """The headers that an error document carries beside its type."""
    headers: list[tuple[bytes, bytes]] = []
    if error.retry_after is not None:
        headers.append((b"retry-after", str(math.ceil(error.retry_after)).encode()))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers
