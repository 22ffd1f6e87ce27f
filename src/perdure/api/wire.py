"""The wire protocol as a raw ASGI app: what workers and the SDK speak.

WebSocket `/wire`: binary messages, each a MessagePack array of frames; a request is `[id, op, body]`, its answer `[id,
status, body]` with status 0, or an HTTP status and a problem document. Ids are the client's, answers come in any
order, and both sides put what is ready into one message. `[id, "abandon", null]` ends a waiting request unanswered.
What cannot be read as frames is answered under id 0.

POST `/wire/{op}` (and `/worker/poll`, `/worker/heartbeat`, `/worker/complete`): the same bodies, as MessagePack or
JSON.

A typed web framework costs more than everything else that happens to a request, hence raw ASGI. For the same reason the
requests of one message that only change things are planned one by one and applied together, op by op.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.api import events, workflows
from perdure.api.auth import Gate
from perdure.api.codec import JSON, MSGPACK, Codec, MethodNotAllowed, invalid, problem_headers
from perdure.api.parking import Parking
from perdure.api.plan import Plan
from perdure.api.service import PLANNED, Caller, Service
from perdure.api.sessions import GRACE, Sessions
from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core.errors import Internal, InvalidArgument, NotFound, PayloadTooLarge, PerdureError, ResourceExhausted
from perdure.core.limits import MAX_BODY
from perdure.engine.engine import Engine

log = logging.getLogger("perdure.api")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

WAITING = events.WAITING | frozenset({"poll", "get", "nudge", "get_bulk"}) | workflows.WAITING
"""Operations whose answer may be held back."""
MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of answers that are put into one message; a larger one travels alone."""

MAX_OPEN = 10_000
"""Requests of one connection that are open at once."""
MAX_STARTED = 1_000
"""Requests of one message that are started in one turn of the event loop: others have their turn between."""
MAX_UNSENT = 64 * 1024 * 1024
"""Bytes of answers that a client has not taken while more requests of it are read."""
ANSWER_BYTES = 200
"""What an answer that waits takes beside its own bytes."""
STALL_SECONDS = 10.0
"""How long a client with more than MAX_UNSENT may take nothing at all."""


class _Frame(msgspec.Struct, array_like=True):
    id: int
    op: str
    body: msgspec.Raw


_frames = msgspec.msgpack.Decoder(list[_Frame]).decode


class Wire:
    """The ASGI app; one for a server."""

    def __init__(self, engine: Engine, gate: Gate, parking: Parking) -> None:
        self.engine = engine
        self.gate = gate
        self.parking = parking
        self.sessions = Sessions()
        self._stopping = False
        self._ends: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._post(scope, receive, send)

    def stop(self) -> None:
        """The server shuts down: waits end now, and connections that break from here on say nothing about workers."""
        self._stopping = True
        self.parking.end()
        for task in self._ends:
            task.cancel()

    # -------------------------------------------------------------------------------------------------- WebSocket
    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        try:
            if scope["path"] != "/wire":
                raise NotFound(f"nothing answers at {scope['path'][:100]}")
            if any(name == b"origin" for name, _ in scope["headers"]):
                # A browser sends its cookies and its reach into the local network anywhere a page tells it to.
                raise InvalidArgument("the wire protocol is not for web pages", field="origin")
            caller = self.gate.admit(scope["headers"])
            connection = Connection(self, send, caller)
            connection.service = Service(self.engine, caller, parking=self.parking, alive=connection.alive)
        except PerdureError as error:
            await refuse(scope, receive, send, error)
            return
        await send({"type": "websocket.accept"})
        await connection.run(receive)

    def broke(self, incarnation: int, epoch: int) -> None:
        """A worker's connection ended without goodbye."""
        loop = asyncio.get_running_loop()
        if not self._stopping and self.sessions.broke(incarnation, epoch, loop.time()):
            loop.call_later(GRACE, self._end_sessions)

    def _end_sessions(self) -> None:
        due = self.sessions.due(asyncio.get_running_loop().time())
        if due and not self._stopping:
            task = asyncio.create_task(self._close_sessions([c.CloseSession(incarnation=i, epoch=e) for i, e in due]))
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _close_sessions(self, commands: list[c.CloseSession]) -> None:
        try:
            await self.engine.apply(commands)
        except PerdureError as error:
            log.warning("leases of lost workers run out by themselves: %s", error)

    # ------------------------------------------------------------------------------------------------------- POST
    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        codec = JSON
        try:
            op = _op(scope)
            codec = _codec(scope)
            caller = self.gate.admit(scope["headers"])
            body = codec.decode(op, await read_body(scope, receive))
            listener = _Listener(receive)
            service = Service(self.engine, caller, parking=self.parking, alive=listener.alive)
            call = getattr(service, op)(body)
            reply = await (listener.race(call) if getattr(body, "wait", 0.0) else call)
            self._note(op, body)
        except _Gone:
            return
        except PerdureError as error:
            await answer(send, error.status, codec.encode(error.problem()), codec.problem_type, problem_headers(error))
        except Exception:
            log.exception("a request failed")
            await answer(send, 500, codec.encode(Internal().problem()), codec.problem_type)
        else:
            await answer(send, 200, codec.encode(reply), codec.content_type)

    def _note(self, op: str, body: m.Body) -> None:
        if op == "close_session":
            assert isinstance(body, m.CloseSession)
            self.sessions.closed(body.incarnation)


class Connection:
    """One WebSocket: reads frames, starts what they ask, and writes answers in the order in which they are ready."""

    service: Service

    def __init__(self, wire: Wire, send: Send, caller: Caller) -> None:
        self._wire = wire
        self._send = send
        self._caller = caller
        self._open = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._answers: list[msgspec.Raw] = []
        self._unsent = 0
        self._ready = asyncio.Event()
        self._taken = asyncio.Event()
        self._session: tuple[int, int] | None = None

    def alive(self) -> bool:
        return self._open and self._wire.gate.admits(self._caller)

    async def run(self, receive: Receive) -> None:
        """Until the client is gone, or takes no answers; then everything that it waits for is canceled."""
        writer = asyncio.create_task(self._write())
        try:
            while (message := await receive())["type"] == "websocket.receive":
                if not self._wire.gate.admits(self._caller):
                    break  # the key was revoked; whoever connects again is told so
                await self._read(message.get("bytes"))
                if self._unsent > MAX_UNSENT and not await self._room():
                    log.warning("a connection is closed: its client takes no answers")
                    break
        finally:
            self._open = False
            for task in (writer, *self._tasks, *self._waiting.values()):
                task.cancel()
            await asyncio.gather(writer, return_exceptions=True)  # it may have failed on the broken connection
            if self._session is not None:
                self._wire.broke(*self._session)

    async def _room(self) -> bool:
        """Read nothing more from a client that is slow to take its answers, because they would grow without bound.
        Whether it took enough of them."""
        while self._unsent > MAX_UNSENT:
            self._taken.clear()
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    await self._taken.wait()
            except TimeoutError:
                return False
        return True

    async def _read(self, data: bytes | None) -> None:
        try:
            frames = _frames(data or b"")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            self._answer_error(0, invalid(str(fault)))
            return
        for start in range(0, len(frames), MAX_STARTED):
            if start:
                await asyncio.sleep(0)
            self._start_all(frames[start : start + MAX_STARTED])

    def _start_all(self, frames: list[_Frame]) -> None:
        planned: dict[str, list[tuple[int, Plan]]] = {}
        for frame in frames:
            try:
                self._start(frame, planned)
            except PerdureError as error:
                self._answer_error(frame.id, error)
        for plans in planned.values():
            self._spawn(self._apply(plans))

    def _start(self, frame: _Frame, planned: dict[str, list[tuple[int, Plan]]]) -> None:
        op = frame.op
        if op == "abandon":
            if (task := self._waiting.pop(frame.id, None)) is not None:
                task.cancel()
            return
        if len(self._tasks) + len(self._waiting) >= MAX_OPEN:
            raise ResourceExhausted(f"{MAX_OPEN} requests of this connection are open", retry_after=1.0)
        if op not in m.OPS:
            raise NotFound(f"there is no operation {op[:50]!r}")
        body = MSGPACK.decode(op, frame.body)
        if op in PLANNED and not getattr(body, "wait", 0.0):
            if isinstance(body, m.CloseSession):
                self._goodbye(body)
            planned.setdefault(op, []).append((frame.id, self.service.plan(op, body)))
        elif op in WAITING or op in PLANNED:
            if frame.id in self._waiting:
                raise InvalidArgument(f"request {frame.id} is still open", field="id", kind="int")
            task = asyncio.create_task(self._call(frame.id, op, body))
            self._waiting[frame.id] = task
        else:
            self._spawn(self._call(frame.id, op, body))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _apply(self, plans: list[tuple[int, Plan]]) -> None:
        """One trip through the engine for all requests of a kind; each is answered by itself."""
        commands = [command for _, plan in plans for command in plan.commands]
        try:
            outcomes = await self._wire.engine.apply(commands) if commands else []
        except PerdureError as error:
            for id, _ in plans:
                self._answer_error(id, error)
            return
        except Exception:
            log.exception("requests failed")
            for id, _ in plans:
                self._answer_error(id, Internal())
            return
        start = 0
        for id, plan in plans:
            end = start + len(plan.commands)
            try:
                self._answer(id, 0, plan.finish(outcomes[start:end]))
            except PerdureError as error:
                self._answer_error(id, error)
            start = end

    async def _call(self, id: int, op: str, body: m.Body) -> None:
        try:
            reply = await getattr(self.service, op)(body)
            if isinstance(body, m.OpenSession):
                self._session = (body.incarnation, body.epoch)
                self._wire.sessions.opened(*self._session)
            self._answer(id, 0, reply)
        except PerdureError as error:
            self._answer_error(id, error)
        except Exception:
            log.exception("a request failed")
            self._answer_error(id, Internal())
        finally:
            self._waiting.pop(id, None)

    def _goodbye(self, body: m.CloseSession) -> None:
        if self._session is not None and self._session[0] == body.incarnation:
            self._session = None
        self._wire.sessions.closed(body.incarnation)

    # ------------------------------------------------------------------------------------------------------ answers
    def _answer_error(self, id: int, error: PerdureError) -> None:
        self._answer(id, error.status, error.problem())

    def _answer(self, id: int, status: int, body: object) -> None:
        data = MSGPACK.encode((id, status, body))
        self._answers.append(msgspec.Raw(data))
        self._unsent += len(data) + ANSWER_BYTES
        self._ready.set()

    async def _write(self) -> None:
        """The only writer: what became ready while it slept or wrote goes out together."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            answers, self._answers = self._answers, []
            start = size = 0
            for end, answer_ in enumerate(answers, 1):
                size += len(memoryview(answer_))
                if size >= MAX_MESSAGE or end == len(answers):
                    await self._send({"type": "websocket.send", "bytes": MSGPACK.encode(answers[start:end])})
                    self._unsent -= size + ANSWER_BYTES * (end - start)
                    self._taken.set()
                    start, size = end, 0


class _Gone(Exception):
    """The client hung up."""


class _Listener:
    """Notices that the client of a POST hangs up while its answer is held back."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False

    def alive(self) -> bool:
        return not self._gone

    async def race(self, call: Awaitable[m.Body]) -> m.Body:
        """The reply of `call`, which is canceled (and _Gone raised) when the client hangs up first."""
        work = asyncio.ensure_future(call)
        hangup = asyncio.ensure_future(self._wait())
        try:
            await asyncio.wait((work, hangup), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise _Gone
        finally:
            hangup.cancel()
            work.cancel()

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True


def _op(scope: Scope) -> str:
    path: str = scope["path"]
    top, _, op = path[1:].partition("/")
    known = op in ("poll", "heartbeat", "complete", "nudge") if top == "worker" else op in m.OPS
    if not known:
        raise NotFound(f"nothing answers at {path[:100]}")
    if scope["method"] != "POST":
        raise MethodNotAllowed(f"{path} takes POST")
    return op


def _codec(scope: Scope) -> Codec:
    given = header(scope, b"content-type").partition(";")[0].strip().lower()
    for codec in (MSGPACK, JSON):
        if given.encode() == codec.content_type:
            return codec
    raise InvalidArgument(
        f"content type {given[:50]!r}", field="content-type", limit="application/msgpack, application/json", kind="str"
    )


def header(scope: Scope, name: bytes) -> str:
    """The value of a request header, or nothing."""
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The whole body; PayloadTooLarge as soon as it is known to be over the limit."""
    too_large = PayloadTooLarge("the body is too large", field="body", limit=f"{MAX_BODY} bytes")
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > MAX_BODY:
        raise too_large
    message = await receive()
    data: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return data
    chunks, size = [data], len(data)
    while message.get("more_body"):
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY:
            raise too_large
        chunks.append(chunk)
    if message["type"] == "http.disconnect":
        raise _Gone
    return b"".join(chunks)


async def answer(
    send: Send, status: int, body: bytes, content_type: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """A whole HTTP answer."""
    start = [(b"content-type", content_type), (b"content-length", str(len(body)).encode()), *(headers or ())]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


async def refuse(scope: Scope, receive: Receive, send: Send, error: PerdureError) -> None:
    """Answer a request, or a handshake instead of a WebSocket, with a problem document."""
    if scope["type"] == "http":
        problem = JSON.encode(error.problem())
        await answer(send, error.status, problem, JSON.problem_type, problem_headers(error))
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
        return
    body = JSON.encode(error.problem())
    headers = [(b"content-type", JSON.problem_type), (b"content-length", str(len(body)).encode())]
    headers += problem_headers(error)
    headers.append((m.REFUSAL_HEADER.encode(), quote(error.detail, safe=" ").encode()))
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
    # uvicorn says "disconnect" after the answer and again when the connection has ended. An app that returns before the
    # second one looks to it as if it had refused nothing, and it logs an error.
    await receive()
    await receive()
