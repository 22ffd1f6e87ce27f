"""Short forms for calls, and the two ways to call that the product itself has no client for: JSON bodies, and REST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec

from perdure.client.base import Service
from perdure.client.calls import Calls
from perdure.core import messages as m
from perdure.core.errors import Problem, from_problem
from perdure.core.model import Payload

JSON = {"encoding": "json/plain"}
INCARNATION = 77


def payload(data: bytes = b'{"a":1}') -> tuple[Payload, ...]:
    return (Payload(JSON, data),)


def task(type_: str = "t", **options: Any) -> m.NewTask:
    return m.NewTask(type_, payload=options.pop("payload", payload()), **options)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def enqueue(service: Service, *items: m.NewTask) -> list[str]:
    """Ids of tasks that must all have been accepted."""
    reply = await service.enqueue(m.Enqueue(list(items) or [task()]))
    assert all(item.error is None for item in reply.tasks), reply
    return [item.task_id for item in reply.tasks]


async def poll(service: Service, number: int = 1, *, capacity: int = 10, wait: float = 5.0) -> list[m.Delivery]:
    body = m.Poll(INCARNATION, number, ["default"], capacity, wait)
    return (await service.poll(body)).tasks


async def succeed(service: Service, delivery: m.Delivery, data: bytes = b"42") -> m.Completed:
    body = m.Complete([m.Completion(delivery.lease, "succeeded", result=payload(data))])
    return (await service.complete(body)).outcomes[0]


class JsonService(Calls):
    """The wire protocol over POST with JSON bodies, as curl would speak it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(headers={"Content-Type": "application/json"})

    async def _ask(self, op: str, body: m.Body) -> Any:
        async with self._session.post(f"{self._url}/wire/{op}", data=msgspec.json.encode(body)) as response:
            data = await response.read()
            if response.status != 200:
                assert response.content_type == "application/problem+json"
                raise from_problem(msgspec.json.decode(data, type=Problem))
            return msgspec.json.decode(data, type=m.OPS[op][1])

    async def close(self) -> None:
        await self._session.close()


class Answer(NamedTuple):
    status: int
    headers: Any
    body: Any

    @property
    def type(self) -> str:
        return str(self.headers["content-type"])


class Rest:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, path: str, json: Any = None, **options: Any) -> Answer:
        if json is not None:
            options["json"] = json
        async with self._session.request(method, path, **options) as response:
            data = await response.read()
            return Answer(response.status, response.headers, msgspec.json.decode(data) if data else None)


@asynccontextmanager
async def new_rest(url: str, **headers: str) -> AsyncIterator[Rest]:
    async with aiohttp.ClientSession(url, headers=headers) as session:
        yield Rest(session)
