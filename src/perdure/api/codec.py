"""Bodies to bytes and back, with faults that name the field."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core import messages as m
from perdure.core.errors import InvalidArgument, PerdureError

_FAULT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_NAMED = re.compile(r"(?:required|unknown) field `([^`]*)`")
_GOT = re.compile(r"got `([^`]*)`")


class MethodNotAllowed(InvalidArgument):
    code, title, status = "method_not_allowed", "Method not allowed", 405


def invalid(fault: str, path: str | None = None) -> InvalidArgument:
    """The error for what msgspec says of a body that is malformed, truncated, of wrong types, or has unknown or missing
    fields; `path` is where, if that is not in its words."""
    match = _FAULT.fullmatch(fault)
    what, found = (match["what"], match["path"]) if match else (fault, None)
    path = found or (None if path == "data" else path)
    named, got = _NAMED.search(what), _GOT.search(what)
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
    return InvalidArgument(what[:300], field=path, kind=got[1] if got else None)


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
            raise invalid(str(fault)) from None
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
