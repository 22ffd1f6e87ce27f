"""Python values to payloads and back, so that a value that arrives equals the value that was sent.

    None        {"encoding": "binary/null"}
    bytes       {"encoding": "binary/plain"}
    the rest    {"encoding": "json/plain"}: dict with str keys, list, str, int of 64 bits, finite float, bool, None

A value that JSON would change is refused, never altered (field case B135): a tuple or set would come back as a list, a
datetime or UUID as text, NaN as nothing. The check is the definition itself, encode, decode and compare, because
three C calls cost less than a walk in Python; only a refused value is walked, to name the path of what is wrong.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator

import msgspec

from perdure.core.errors import InvalidArgument
from perdure.core.model import Payload, Payloads

MAX_DEPTH = 500
"""Levels of nesting. Python's own readers of JSON give up below 1,000, less what their caller already used."""

_JSON = {"encoding": "json/plain"}
_PLAIN = {"encoding": "binary/plain"}
_NULL: Payloads = (Payload({"encoding": "binary/null"}, b""),)
_LIMIT = "dict with str keys, list, str, 64-bit int, finite float, bool, None; bytes only by themselves"

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.json.Decoder().decode


def to_payloads(value: object, field: str) -> Payloads:
    """`value` as payloads; InvalidArgument names the path below `field` of what would not survive a round trip."""
    if value is None:
        return _NULL
    if type(value) is bytes:
        return (Payload(_PLAIN, value),)
    try:
        data = _encode(value)
        survives = bool(_decode(data) == value)
        _pack(value)  # raises for an int of more than 64 bits, which JSON here has and readers elsewhere have not
    except Exception:  # noqa: BLE001 - attributes, time zones and comparisons are the application's own code
        raise _refused(value, field) from None
    if not survives or (_may_be_deep(data) and next(_faults(value, field), None)):
        raise _refused(value, field)
    return (Payload(_JSON, data),)


def from_payloads(payloads: Payloads, field: str) -> object:
    """The value; no payload at all is None. InvalidArgument when this SDK cannot read it."""
    if not payloads:
        return None
    if len(payloads) > 1:
        raise InvalidArgument(f"{field} holds {len(payloads)} values; one was expected", field=field, limit="1 value")
    encoding = payloads[0].metadata.get("encoding")
    if encoding == "json/plain":
        try:
            return _decode(payloads[0].data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"{field} is not JSON: {error}", field=field, kind="bytes") from None
    if encoding == "binary/null":
        return None
    if encoding == "binary/plain":
        return payloads[0].data
    raise InvalidArgument(
        f"{field} has an encoding that nothing here reads: {encoding!r}",
        field=field,
        limit="json/plain, binary/plain, binary/null",
    )


def _may_be_deep(data: bytes) -> bool:
    """False when nesting cannot be too deep: a bound that costs nothing."""
    return data.count(b"[") + data.count(b"{") > MAX_DEPTH


def _refused(value: object, path: str) -> InvalidArgument:
    try:
        fault = next(_faults(value, path), None)
    except Exception as error:  # noqa: BLE001 - as above
        return _fault(path, value, f"cannot be read: {type(error).__name__}")
    return fault or _fault(path, value, "would not arrive as it was sent")


def _faults(root: object, field: str) -> Iterator[InvalidArgument]:
    """What is wrong with a value, in order. A stack of its own: recursion is one of the faults it looks for."""
    stack: list[tuple[object, str, int]] = [(root, field, 1)]
    while stack:
        value, path, depth = stack.pop()
        if isinstance(value, (dict, list)) and depth > MAX_DEPTH:
            yield _fault(field, root, f"is nested more than {MAX_DEPTH} levels deep")
            return
        if isinstance(value, dict):
            for key, item in reversed(value.items()):
                if not isinstance(key, str):
                    yield _fault(path, key, f"has the key {_show(key)}, which is no str")
                elif not _is_text(key):
                    yield _fault(path, key, "has a key with a lone surrogate")
                stack.append((item, f"{path}.{_show(key)}", depth + 1))
        elif isinstance(value, list):
            stack.extend((item, f"{path}[{i}]", depth + 1) for i, item in reversed(list(enumerate(value))))
        else:
            fault = _scalar_fault(value)
            if fault:
                yield _fault(path, value, fault)


def _scalar_fault(value: object) -> str:
    """Why JSON cannot carry this value unchanged; empty when it can."""
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str):
        return "" if _is_text(value) else "has a lone surrogate"
    if isinstance(value, int):
        return "" if -(1 << 63) <= value < 1 << 64 else "is an int of more than 64 bits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"is {value}, which JSON does not have"
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        return f"is a {type(value).__name__}, not a value; is an `await` missing?"
    return f"is a {type(value).__name__}, which JSON would change or cannot carry; convert it first"


def _fault(path: str, value: object, what: str) -> InvalidArgument:
    return InvalidArgument(f"{path} {what}", field=path, limit=_LIMIT, kind=type(value).__name__)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _show(key: object) -> str:
    try:
        text = key if isinstance(key, str) and key.isidentifier() else repr(key)
    except Exception:  # noqa: BLE001 - the application's own code
        text = f"<{type(key).__name__}>"
    return text[:50]
