"""A server reached over the network, by WebSocket or by plain POST: the same bodies, replies and errors.

Every operation may be repeated without harm (ids and keys are made by the caller, completions and polls are answered
as before), so a call whose connection breaks is repeated here, for RETRY_SECONDS, and so is one that the server
refuses for now. The exceptions are calls without what tells a repeat from a second one: once sent, they end in
OutcomeUnknown. See `repeatable`.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
import socket
from typing import Any, Literal

import aiohttp

from perdure.client.calls import Calls
from perdure.client.packing import packed
from perdure.client.transport import CONNECT_SECONDS, ConnectionBroken, Transport, answer_within, read_reply
from perdure.client.websocket import Hook, WebSocketTransport
from perdure.core import event_messages as e
from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.core import schedule_messages as s
from perdure.core import workflow_messages as w
from perdure.core.errors import NoWorker, OutcomeUnknown, Unavailable

RETRY_SECONDS = 30.0
"""How long a call is repeated, counted from its first failure; then it raises Unavailable."""
LONGEST_PAUSE = 2.0
_LARGE = 1 << 20


class HttpService(Calls):
    """`url` is the server's, such as "http://127.0.0.1:7400". `namespace` is only for servers without API keys; else
    the key decides. `on_connect` runs after each connect of the WebSocket, before any other call: a worker opens its
    session there. Use it and close it on one event loop."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        namespace: str | None = None,
        transport: Literal["websocket", "http"] = "websocket",
        on_connect: Hook | None = None,
    ) -> None:
        headers = {"Perdure-Identity": f"{os.getpid()}@{socket.gethostname()}"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        if namespace is not None:
            headers["Perdure-Namespace"] = namespace
        url = url.rstrip("/")
        self._transport: Transport
        if transport == "websocket":
            self._transport = WebSocketTransport(url, headers, on_connect)
        else:
            self._transport = PostTransport(url, headers)
        self._closed = False

    async def close(self) -> None:
        """Let go of the connection; open calls raise Unavailable."""
        self._closed = True
        await self._transport.close()

    async def _ask(self, op: str, body: m.Body) -> Any:
        data = packed(body)
        wait = getattr(body, "wait", 0.0)
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        failures = 0
        while True:
            if self._closed:
                raise Unavailable("the client was closed")
            error: Unavailable
            pause = random.uniform(0, min(0.05 * 2 ** min(failures, 10), LONGEST_PAUSE))
            try:
                return await self._transport.ask(op, data, wait)
            except ConnectionBroken as broken:
                error = OutcomeUnknown(str(broken)) if broken.sent else Unavailable(str(broken))
                error.__cause__ = broken
            except NoWorker:
                raise
            except Unavailable as unavailable:
                error = unavailable
                pause += unavailable.retry_after or 0.0
            if isinstance(error, OutcomeUnknown) and not repeatable(body):
                raise error
            failures += 1
            deadline = loop.time() + RETRY_SECONDS if deadline is None else deadline
            if self._closed or loop.time() + pause > deadline:
                raise Unavailable(error.detail, retry_after=error.retry_after) from error
            await asyncio.sleep(pause)


def repeatable(body: m.Body) -> bool:
    """Whether sending this again after it may have been committed does no harm."""
    match body:
        case m.Enqueue():
            return all(item.idempotency_key is not None for item in body.tasks)
        case w.StartWorkflow() | w.SignalWorkflow() | w.ResetWorkflow():
            return bool(body.request_id)
        case s.TriggerSchedule():
            return bool(body.request_id)
        case f.StartBulk():
            return bool(body.request_id) or body.dry_run
        case w.CancelWorkflow():
            return bool(body.request_id or body.run_id)
        case w.TerminateWorkflow():
            return bool(body.run_id)  # else it might end the next run of that workflow id
        case w.CompleteActivity():
            return False  # by then another attempt may run, or another activity have the id
        case e.AddWebhook():
            return False  # the second one would send everything twice
        case _:
            return True


class PostTransport:
    """A POST a request, on kept connections."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = f"{url}/wire/"
        self._headers = {**headers, "Content-Type": "application/msgpack"}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, op: str, data: bytes, wait: float) -> Any:
        if self._session is None:
            # No limit on connections: waits must not keep a heartbeat from being sent.
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=answer_within(wait))
        # aiohttp writes a file in pieces, and warns that it blocks the event loop with bytes of such a size.
        sent = io.BytesIO(data) if len(data) > _LARGE else data
        try:
            async with self._session.post(self._url + op, data=sent, timeout=timeout) as response:
                status, answer = response.status, await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise ConnectionBroken(f"cannot connect to {self._url}: {error}", sent=False) from None
        except (aiohttp.ClientError, OSError, TimeoutError, RuntimeError) as error:
            raise ConnectionBroken(f"the connection to {self._url} broke: {error!r}", sent=True) from None
        return read_reply(op, status, answer)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
