"""Payloads, results and other values as text. Pages show the beginning of long ones; the whole is a download."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec

from perdure.core.errors import InvalidArgument
from perdure.core.model import Payload, Payloads

MAX_SHOWN = 8_192
"""Characters of a value on a page."""
_JSON = {"encoding": "json/plain"}


class Shown(NamedTuple):
    """A value on a page; `size` are the characters of all of it."""

    text: str
    size: int

    @property
    def is_cut(self) -> bool:
        return len(self.text) < self.size


def shown(payloads: Payloads | None, most: int = MAX_SHOWN) -> Shown:
    """The beginning of a value."""
    return cut(whole(payloads), most)


def plain(value: Any, most: int = MAX_SHOWN) -> Shown:
    """The beginning of a value that is no payload, as JSON."""
    return cut(msgspec.json.format(msgspec.json.encode(value), indent=2).decode("utf-8", "replace"), most)


def cut(text: str, most: int = MAX_SHOWN) -> Shown:
    """The beginning of a text."""
    return Shown(text[:most], len(text))


def whole(payloads: Payloads | None) -> str:
    """One payload as its value, several one below the other."""
    return "\n".join(_one(payload) for payload in payloads or ())


def typed(text: str) -> Payloads:
    """What somebody typed as JSON; nothing typed is no input. InvalidArgument when it is not JSON."""
    if not text.strip():
        return ()
    try:
        data = msgspec.json.format(text.encode(), indent=-1)
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as fault:
        raise InvalidArgument(f"the input is not JSON: {fault}", field="input", limit="JSON", kind="str") from None
    return (Payload(_JSON, data),)


def _one(payload: Payload) -> str:
    match payload.metadata.get("encoding", ""):
        case "json/plain":
            try:
                return msgspec.json.format(payload.data, indent=2).decode("utf-8", "replace")
            except (msgspec.DecodeError, RecursionError):
                return payload.data.decode("utf-8", "replace")
        case "binary/null":
            return "null"
    stored = {"metadata": payload.metadata, "data": base64.b64encode(payload.data).decode()}
    return msgspec.json.format(msgspec.json.encode(stored), indent=2).decode()
