"""Python values to payloads and back, so that a value that arrives equals the value that was sent.

    None        {"encoding": "binary/null"}
    bytes       {"encoding": "binary/plain"}
    the rest    {"encoding": "json/plain"}
    a plug-in   {"encoding": its name}, around one of the above

What a handler declares decides what JSON may stand for (hints.py): a payload that is declared to be a dataclass, a
datetime or a set arrives as one. Where nothing is declared JSON has its own types only: dict with str keys, list, str,
int of 64 bits, finite float, bool, None.

A value that would arrive as another one is refused, never altered (field case B135): a tuple would come back as a list
where nothing says tuple, NaN as nothing. The check is the definition itself, encode, decode and compare, because three
C calls cost less than a walk in Python; only a refused value is walked, to name the path of what is wrong.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from perdure.core.errors import InvalidArgument
from perdure.core.model import Payload, Payloads
from perdure.sdk import hints
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.plugin import DataConverter, checked

MAX_DEPTH = 500
"""Levels of nesting. Python's own readers of JSON give up below 1,000, less what their caller already used."""

_JSON = {"encoding": "json/plain"}
_PLAIN = {"encoding": "binary/plain"}
_NULL: Payloads = (Payload({"encoding": "binary/null"}, b""),)
_LIMIT = "dict with str keys, list, str, 64-bit int, finite float, bool, None; bytes only by themselves"

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_decode = msgspec.json.Decoder().decode
_unpack_payload = msgspec.msgpack.Decoder(Payload).decode
_PATH = re.compile(r" - at `(?P<key>key in )?\$(?P<path>[^`]*)`$")


class Converter:
    """All conversions of one application. Of the `plugins` that have bytes in and out the first one writes, and all
    read; for types that nothing here knows they are asked in order."""

    def __init__(self, plugins: Sequence[DataConverter] = ()) -> None:
        self._plugins = plugins
        wrapping = checked([plugin for plugin in plugins if type(plugin).encode is not DataConverter.encode])
        self._readers = {plugin.encoding: plugin for plugin in wrapping}
        self._writer = wrapping[0] if wrapping else None
        self._encode_typed = msgspec.json.Encoder(enc_hook=self._plain).encode
        self._pack_typed = msgspec.msgpack.Encoder(enc_hook=self._plain).encode
        self._decoders: dict[Hint, msgspec.json.Decoder[object] | None] = {ANY: None}

    def __reduce__(self) -> tuple[type[Converter], tuple[Sequence[DataConverter]]]:
        """Its plug-ins go to another process; decoders are made there."""
        return Converter, (self._plugins,)

    def prepare(self, hint: Hint) -> None:
        """Read an annotation now. TypeError when it cannot be, or when nothing can tell its types apart in JSON."""
        self._decoder(hint)

    def to_payloads(self, value: object, field: str, hint: Hint = ANY) -> Payloads:
        """`value` as payloads for a reader who declares `hint`; InvalidArgument names the path below `field` of what
        would not arrive as it was sent."""
        decoder = self._decoder(hint)
        if value is None or type(value) is bytes:
            if decoder is not None:
                self._read_plain(value, field, hint)
            payloads = _NULL if value is None else (Payload(_PLAIN, value),)
        elif decoder is None:
            payloads = (Payload(_JSON, _plain_json(value, field)),)
        else:
            payloads = (Payload(_JSON, self._typed_json(value, field, decoder)),)
        return payloads if self._writer is None else self._wrapped(self._writer, payloads[0], field)

    def from_payloads(self, payloads: Payloads, field: str, hint: Hint = ANY) -> object:
        """The value; no payload at all is None. InvalidArgument, with the path, when it cannot be read or is not what
        `hint` says."""
        if len(payloads) > 1:
            raise InvalidArgument(
                f"{field} holds {len(payloads)} values; one was expected", field=field, limit="1 value"
            )
        payload = payloads[0] if payloads else _NULL[0]
        encoding = payload.metadata.get("encoding", "")
        if encoding in self._readers:
            payload = self._unwrapped(self._readers[encoding], payload, field)
            encoding = payload.metadata.get("encoding", "")
        if encoding == "json/plain":
            decoder = self._decoder(hint)
            try:
                return _decode(payload.data) if decoder is None else decoder.decode(payload.data)
            except Exception as error:  # noqa: BLE001 - to make a value may run the application's own code
                raise _misfit(error, field) from None
        if encoding == "binary/null":
            return None if self._decoder(hint) is None else self._read_plain(None, field, hint)
        if encoding == "binary/plain":
            return payload.data if self._decoder(hint) is None else self._read_plain(payload.data, field, hint)
        raise InvalidArgument(
            f"{field} has an encoding that nothing here reads: {encoding[:50]!r}",
            field=field,
            limit=", ".join(("json/plain", "binary/plain", "binary/null", *self._readers)),
        )

    # ----------------------------------------------------------------------------------------------------- typed values
    def _decoder(self, hint: Hint) -> msgspec.json.Decoder[object] | None:
        """None for a hint that says nothing."""
        try:
            return self._decoders[hint]
        except KeyError:
            found = None if hint.says_nothing else hint.decoder(self._from_plain)
            self._decoders[hint] = found
            return found

    def _read_plain(self, value: object, field: str, hint: Hint) -> object:
        """None or bytes, as a value of the type that is declared."""
        try:
            return msgspec.convert(value, hint.shape, dec_hook=self._from_plain)
        except Exception as error:  # noqa: BLE001 - as above
            raise _misfit(error, field) from None

    def _typed_json(self, value: object, field: str, decoder: msgspec.json.Decoder[object]) -> bytes:
        """For a reader who declares a type. JSON that stands for a value of it (text for a datetime, say) may be sent
        as well as the value itself."""
        try:
            data = self._encode_typed(value)
        except Exception as error:  # noqa: BLE001 - attributes, time zones and hooks are the application's own code
            raise _scalar(value, field) or _fault(field, value, f"cannot be encoded: {error}") from None
        try:
            self._pack_typed(value)
            deep = _may_be_deep(data) and next(_faults(_decode(data), field), None)
            back = None if deep else decoder.decode(data)
        except msgspec.ValidationError as error:
            raise _scalar(value, field) or _misfit(error, field) from None
        except Exception as error:  # noqa: BLE001 - as above; an int of more than 64 bits most likely
            raise _scalar(_decode(data), field) or _fault(field, value, f"cannot be read back: {error}") from None
        if deep:
            raise deep
        if not (_same(back, value) or self._is_json(value, data) or self._is_itself(value, back, data)):
            path, part = _difference(value, back, field)
            raise _fault(path, part, f"is a {type(part).__name__}, which would not arrive as it was sent")
        return data

    def _is_json(self, value: object, data: bytes) -> bool:
        return _same(_decode(data), value)

    def _is_itself(self, value: object, back: object, data: bytes) -> bool:
        """For objects that equal nothing but themselves."""
        kind = type(value)
        return kind is type(back) and kind.__eq__ is object.__eq__ and self._encode_typed(back) == data

    def _plain(self, value: object) -> object:
        """What JSON has for a value that msgspec does not know."""
        for plugin in self._plugins:
            with contextlib.suppress(NotImplementedError):
                return plugin.to_plain(value)
        return hints.plain(value)

    def _from_plain(self, kind: type, value: object) -> object:
        """The value of such a type that JSON stands for."""
        if isinstance(kind, type) and issubclass(kind, hints.Choice):
            return hints.chosen(kind, value, self._from_plain, self._plain)
        for plugin in self._plugins:
            with contextlib.suppress(NotImplementedError):
                return plugin.from_plain(kind, value)
        return hints.from_plain(kind, value)

    # --------------------------------------------------------------------------------------------------------- plug-ins
    def _wrapped(self, plugin: DataConverter, payload: Payload, field: str) -> Payloads:
        try:
            data = plugin.encode(_pack(payload))
            if not isinstance(data, bytes):
                raise TypeError(f"encode returned a {type(data).__name__}")
        except Exception as error:
            raise InvalidArgument(f"{field}: {plugin.encoding} cannot encode it: {error!r}", field=field) from error
        return (Payload({"encoding": plugin.encoding}, data),)

    def _unwrapped(self, plugin: DataConverter, payload: Payload, field: str) -> Payload:
        try:
            return _unpack_payload(plugin.decode(payload.data))
        except Exception as error:  # a wrong key, most likely
            raise InvalidArgument(f"{field}: {plugin.encoding} cannot decode it: {error!r}", field=field) from error


PLAIN = Converter()
"""Without plug-ins."""
to_payloads = PLAIN.to_payloads
from_payloads = PLAIN.from_payloads


def _plain_json(value: object, field: str) -> bytes:
    """JSON whose own types say it all."""
    try:
        data = _encode(value)
        survives = bool(_decode(data) == value)
        _pack(value)  # raises for an int of more than 64 bits, which JSON here has and readers elsewhere have not
    except Exception:  # noqa: BLE001 - attributes, time zones and comparisons are the application's own code
        raise _refused(value, field) from None
    if not survives or (_may_be_deep(data) and next(_faults(value, field), None)):
        raise _refused(value, field)
    return data


def _same(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - comparisons are the application's own code
        return False


def _misfit(error: Exception, field: str) -> InvalidArgument:
    """What a decoder says, with its path below `field`."""
    text = str(error)
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
        if not isinstance(error, msgspec.ValidationError):
            return InvalidArgument(f"{field} is not JSON: {text}", field=field, kind="bytes")
    else:
        text = f"{type(error).__name__}: {text}"
    path, found = field, _PATH.search(text)
    if found is not None:
        path, text = field + found["path"].replace("[...]", ".*"), text[: found.start()]
        if found["key"]:
            path += ".*"
    return InvalidArgument(f"{path}: {text}", field=path, limit="the type that is declared for it")


def _scalar(value: object, field: str) -> InvalidArgument | None:
    """The fault of a scalar that no type can help: NaN, a lone surrogate, an int of more than 64 bits, a coroutine."""
    try:
        for fault in _faults(value, field):
            if fault.kind in ("float", "str", "int") or "await" in fault.detail:
                return fault
    except Exception:  # noqa: BLE001 - attributes and the like are the application's own code
        return None
    return None


def _difference(sent: object, back: object, path: str) -> tuple[str, object]:
    """Where what came back differs first from what was sent, and what was sent there."""
    if type(sent) is type(back):
        if isinstance(sent, dict) and isinstance(back, dict):
            parts = [(f"{path}.{_show(key)}", item, back.get(key)) for key, item in sent.items()]
        elif isinstance(sent, (list, tuple)) and isinstance(back, (list, tuple)) and len(sent) == len(back):
            parts = [(f"{path}[{i}]", *pair) for i, pair in enumerate(zip(sent, back, strict=True))]
        else:
            fields = getattr(sent, "__struct_fields__", None) or list(getattr(sent, "__dict__", ()))
            parts = [(f"{path}.{name}", getattr(sent, name), getattr(back, name, None)) for name in fields]
        for where, one, other in parts:
            if not _same(one, other):
                return _difference(one, other, where)
    return path, sent


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
    return f"is a {type(value).__name__}, which JSON would change or cannot carry; annotate the handler, or convert it"


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
