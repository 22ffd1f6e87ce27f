"""`ctx.stream`: what a handler says while it runs, and how others read it.

A chunk is bytes, text, or a JSON value, and arrives as it was written. The worker takes chunks from the writer about 20
times a second and sends them behind one another; a chunk that `write` returned for is sent before the attempt ends.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from perdure.core.errors import PayloadTooLarge, ResourceExhausted
from perdure.core.event_messages import StreamChunk, StreamItem
from perdure.core.limits import MAX_BATCH, MAX_CHUNK, MAX_STREAM
from perdure.core.model import Payload, pack, unpack
from perdure.sdk.converter import Converter

T = TypeVar("T")

_WRAPPED = "payload"
"""The kind of a chunk that a plug-in of the converter wrote."""


class StreamWriter:
    """The stream of one attempt. `write` may be called from any thread of the handler; the rest is for the worker."""

    def __init__(self, converter: Converter, written: Callable[[StreamWriter], None]) -> None:
        self._converter = converter
        self._written = written
        self._lock = threading.Lock()
        self._chunks: list[StreamItem] = []  #: that are not known to be stored
        self._stored = 0
        self._bytes = 0
        self._over: BaseException | None = None

    def write(self, value: object) -> None:
        """Add a chunk: bytes, text, or what JSON can carry. It is sent about a twentieth of a second later, and at once
        when the handler ends. Raises PayloadTooLarge beyond 64 KiB, ResourceExhausted beyond 16 MiB a task (all
        attempts together), InvalidArgument for a value that would not arrive as it is, and Cancelled once the lease is
        lost."""
        item = _item(self._converter, value)
        size = len(item.data)
        if size > MAX_CHUNK:
            raise PayloadTooLarge(f"the chunk has {size} bytes", field="value", limit=f"{MAX_CHUNK} bytes")
        with self._lock:
            if self._over is not None:
                raise self._over
            if self._bytes + size > MAX_STREAM:
                raise ResourceExhausted("the stream is full", field="value", limit=f"{MAX_STREAM} bytes a task")
            self._bytes += size
            self._chunks.append(item)
            first = len(self._chunks) == 1
        if first:
            self._written(self)

    def waiting(self, most_bytes: int) -> tuple[int, list[StreamItem]]:
        """The number of the first chunk that is not stored, and as many from it on as have this size."""
        with self._lock:
            chunks: list[StreamItem] = []
            for chunk in self._chunks[:MAX_BATCH]:
                most_bytes -= len(chunk.data) + 50
                if most_bytes < 0 and chunks:
                    break
                chunks.append(chunk)
            return self._stored, chunks

    def stored(self, count: int) -> bool:
        """So many of them are; whether any are left."""
        with self._lock:
            del self._chunks[:count]
            self._stored += count
            return bool(self._chunks)

    def end(self, error: BaseException) -> None:
        """Nothing more is taken; `write` raises this."""
        with self._lock:
            self._over = error
            self._chunks.clear()


def _item(converter: Converter, value: object) -> StreamItem:
    [payload] = converter.to_payloads(value, "value")
    encoding = payload.metadata.get("encoding")
    if encoding == "binary/plain":
        return StreamItem("bytes", payload.data)
    if encoding == "binary/null":
        return StreamItem("json", b"null")
    if encoding != "json/plain":
        return StreamItem(_WRAPPED, pack(payload))
    if isinstance(value, str):
        return StreamItem("text", value.encode())
    return StreamItem("json", payload.data)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk as it was written. `offset` counts over all attempts: to go on later, read from `offset + 1` on."""

    offset: int
    attempt: int
    value: Any
    restarted: bool = False  #: the first one of another attempt than the chunk before: what came before may come again


def value_of(converter: Converter, chunk: StreamChunk) -> Any:
    """What was written."""
    match chunk.kind:
        case "bytes":
            return chunk.data
        case "text":
            return chunk.data.decode()
        case "json":
            return msgspec.json.decode(chunk.data)
        case _:
            return converter.from_payloads((unpack(chunk.data, Payload),), "chunk")


def blocking(values: AsyncIterator[T], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[T]:
    """The values of an iterator that lives on another event loop, where `run` runs things."""
    end = object()

    async def following() -> Any:
        return await anext(values, end)

    while (value := run(following())) is not end:
        yield value
