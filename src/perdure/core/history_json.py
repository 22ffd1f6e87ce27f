"""Histories as JSON: what REST shows, the CLI saves and the replayer reads. Nothing is lost on the way.

An event is {"id", "time" (RFC 3339), "type" (as documents write it), "attributes"}. Ids are UUID text. A payload of
plain JSON is its value; any other one, and a value that would not come back byte for byte, is {"metadata", "data"
(base64)}. Fields that say nothing are left out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from perdure.core.errors import InvalidArgument
from perdure.core.event_types import Attributes, event_name
from perdure.core.events import AnyAttributes, Event
from perdure.core.group_events import CallResult
from perdure.core.ids import text
from perdure.core.model import Payload

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = {"encoding": "json/plain"}
_ID_BYTES = 16
_TYPES: dict[str, type[Attributes]] = {event_name(kind.event_type): kind for kind in AnyAttributes.__args__}
_RESULT = msgspec.inspect.type_info(CallResult)


def to_json(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The events as plain JSON values."""
    return [
        {
            "id": event.id,
            "time": (_EPOCH + timedelta(microseconds=event.time)).isoformat().replace("+00:00", "Z"),
            "type": event_name(event.type),
            "attributes": _shown(event.attributes),
        }
        for event in events
    ]


def from_json(events: object, field: str = "events") -> list[Event]:
    """The events that `to_json` made values of. InvalidArgument names what is none of its making."""
    if not isinstance(events, list):
        raise InvalidArgument(f"{field} is no list", field=field, kind=type(events).__name__)
    return [_event(item, f"{field}[{index}]") for index, item in enumerate(events)]


def results_to_json(results: Iterable[CallResult]) -> list[dict[str, Any]]:
    """The results of a group as plain JSON values."""
    return [_shown(result) for result in results]


def results_from_json(results: object, field: str = "results") -> list[CallResult]:
    """The results that `results_to_json` made values of; InvalidArgument as above."""
    if not isinstance(results, list):
        raise InvalidArgument(f"{field} is no list", field=field, kind=type(results).__name__)
    try:
        return [_result(_read(item, _RESULT)) for item in results]
    except (KeyError, TypeError, ValueError) as fault:
        raise InvalidArgument(f"{field} are none: {fault!r}", field=field) from None


def _result(fields: dict[str, Any]) -> CallResult:
    values = [fields.get(field.name, field.default) for field in msgspec.structs.fields(CallResult)]
    return msgspec.convert(values, CallResult)


def _event(item: Any, where: str) -> Event:
    try:
        kind = _TYPES[item["type"]]
        time = (datetime.fromisoformat(item["time"]) - _EPOCH) // timedelta(microseconds=1)
        attributes = msgspec.convert(_read(item["attributes"], msgspec.inspect.type_info(kind)), kind)
        return Event(int(item["id"]), time, attributes)  # type: ignore[arg-type]  # all of _TYPES are of that union
    except (KeyError, TypeError, ValueError) as fault:
        raise InvalidArgument(f"{where} is no event: {fault!r}", field=where) from None


# ----------------------------------------------------------------------------------------------------------- writing
def _shown(value: Any) -> Any:
    match value:
        case Payload():
            return _payload(value)
        case bytes():
            return text(value) if len(value) == _ID_BYTES else value.hex()
        case msgspec.Struct():
            fields = msgspec.structs.fields(type(value))
            shown = ((field, getattr(value, field.name)) for field in fields)
            return {field.encode_name: _shown(item) for field, item in shown if not _is_default(field, item)}
        case dict():
            return {key: _shown(item) for key, item in value.items()}
        case list() | tuple():
            return [_shown(item) for item in value]
        case _:
            return value


def _is_default(field: msgspec.structs.FieldInfo, value: object) -> bool:
    if field.default is not msgspec.NODEFAULT:
        return bool(value == field.default)
    return field.default_factory is not msgspec.NODEFAULT and not value


def _payload(payload: Payload) -> Any:
    if payload.metadata == _JSON:
        try:
            value = msgspec.json.decode(payload.data)
            if msgspec.json.encode(value) == payload.data and not _looks_like_payload(value):
                return value
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return _encoded(payload)
    return _encoded(payload)


def _encoded(payload: Payload) -> dict[str, Any]:
    return {"metadata": payload.metadata, "data": base64.b64encode(payload.data).decode()}


def _looks_like_payload(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"metadata", "data"}


# ----------------------------------------------------------------------------------------------------------- reading
def _read(value: Any, info: msgspec.inspect.Type) -> Any:
    """What msgspec reads as a value of this type."""
    match info:
        case msgspec.inspect.StructType(cls=cls) if cls is Payload:
            return _payload_of(value)
        case msgspec.inspect.StructType(fields=fields) if isinstance(value, dict):
            types = {field.encode_name: field.type for field in fields}
            return {key: _read(item, types[key]) for key, item in value.items()}
        case msgspec.inspect.VarTupleType(item_type=item) if isinstance(value, list):
            return [_read(part, item) for part in value]
        case msgspec.inspect.DictType(value_type=item) if isinstance(value, dict):
            return {key: _read(part, item) for key, part in value.items()}
        case msgspec.inspect.UnionType(types=types):
            return None if value is None else _read(value, next(t for t in types if not _is_none(t)))
        case msgspec.inspect.BytesType():
            return bytes.fromhex(value.replace("-", ""))
        case _:
            return value


def _is_none(info: msgspec.inspect.Type) -> bool:
    return isinstance(info, msgspec.inspect.NoneType)


def _payload_of(value: Any) -> Payload:
    if _looks_like_payload(value):
        return Payload(value["metadata"], base64.b64decode(value["data"], validate=True))
    return Payload(_JSON, msgspec.json.encode(value))
