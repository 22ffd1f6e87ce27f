"""What the handlers of the REST interface share: how they read requests, and the headers of what was accepted."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.exceptions import InternalServerException
from litestar.params import HeaderParameter, QueryParameter

from perdure.api.codec import invalid, unreadable
from perdure.api.service import Caller, Service
from perdure.core import limits
from perdure.core.durations import seconds
from perdure.core.errors import InvalidArgument
from perdure.engine.engine import Engine

PACE = {"Retry-After": "5"}
"""Seconds between two looks at a job."""

_TRACE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MOST_STATE = 512
"""Characters of a tracestate that have to be passed on."""

T = TypeVar("T")
AnyRequest = Request[Any, Any, Any]
Serving = NamedDependency[Service]
Calling = NamedDependency[Caller]
Serves = NamedDependency[Engine]
Key = Annotated[
    str | None,
    HeaderParameter(name="Idempotency-Key", description="A repeat with this key within 24 hours makes no second task."),
]
Wait = Annotated[
    str, QueryParameter(name="wait", description="Hold the answer back until it has closed: at most 25 seconds, 25s.")
]


def wait_of(given: str) -> float:
    return seconds(given, "wait", most=limits.MAX_WAIT_SECONDS)


def moment_of(given: str, field: str) -> datetime:
    """The framework's own reading would take numbers for seconds since 1970."""
    try:
        return msgspec.convert(given, datetime)
    except msgspec.ValidationError as fault:
        raise invalid(str(fault), field) from None


def traced(request: AnyRequest, headers: dict[str, str]) -> dict[str, str]:
    """The headers of what a request makes: with the trace of the request (W3C Trace Context), unless they name one. A
    trace that cannot be read is none."""
    given = request.headers.get("traceparent", "")
    if "traceparent" in headers or not _TRACE.fullmatch(given):
        return headers
    state = request.headers.get("tracestate", "")
    more = {"tracestate": state} if state and len(state) <= _MOST_STATE and state.isascii() else {}
    return {**headers, "traceparent": given, **more}


def utf8(header: str | None) -> str | None:
    """What the header Idempotency-Key says: its bytes are UTF-8, as those of a body are, although HTTP reads them as
    Latin-1. InvalidArgument for an empty one: its sender believes that a repeat does nothing."""
    if header == "":
        detail = "the header Idempotency-Key is empty"
        raise InvalidArgument(detail, field="idempotency_key", limit=f"1 to {limits.MAX_NAME} bytes", kind="str")
    return None if header is None else header.encode("latin-1").decode("utf-8", "surrogateescape")


async def body_of(request: AnyRequest) -> bytes:
    """InvalidArgument, which nobody will hear, when its sender has gone before the end: no fault of this server."""
    try:
        return await request.body()
    except InternalServerException:
        raise InvalidArgument("the body was cut off", field="body", limit="a whole body") from None


def read(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A request; InvalidArgument names the field. The framework's own reading would take text for numbers."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise unreadable(fault, body) from None


async def read_optional(request: AnyRequest, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The request, if it has a body at all."""
    body = await body_of(request)
    if not body:
        return None
    need_json(request)
    return read(body, decoder)


def need_json(request: AnyRequest) -> None:
    """Only JSON, said to be JSON: a browser sends other types across origins without asking first."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise InvalidArgument(
            f"content type {given[:50]!r}", field="content-type", limit="application/json", kind="str"
        )
