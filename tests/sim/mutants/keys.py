"""Mistakes with what makes a repeated request one request: keys and ids."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from perdure.sdk import client
from perdure.store.memory import MemoryBatch
from tests.sim.mutants.registry import change, mutant


@mutant("a key that is held counts as expired")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.read_keys

    async def read_keys(self: Any, names: Any) -> Any:
        found = await real(self, names)
        for key in found.values():
            key.expires_at = 0
        return found

    change(stack, MemoryBatch, "read_keys", read_keys)


@mutant("keys of open tasks are trimmed")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.trim_keys

    async def trim_keys(self: Any, limit: int, extend: int) -> int:
        self._open = lambda task_id: None
        try:
            return await real(self, limit, extend)
        finally:
            del self._open

    change(stack, MemoryBatch, "trim_keys", trim_keys)


@mutant("minted ids are not looked for among closed tasks")
def _(stack: ExitStack) -> None:
    async def closed(self: Any, task_ids: Any) -> set[bytes]:
        return set()

    change(stack, MemoryBatch, "closed", closed)


@mutant("an enqueue that is repeated gets another id")
def _(stack: ExitStack) -> None:
    real = client.AsyncClient._send

    async def send(self: Any, news: Any, wait: float = 0.0) -> Any:
        service = await self.service()
        enqueue = service.enqueue

        class Changed:
            def __getattr__(self, name: str) -> Any:
                return getattr(service, name)

            async def enqueue(self, body: Any) -> Any:
                for new in body.tasks:
                    if new.minted:
                        new.minted = client.mint_id()
                return await enqueue(body)

        async def changed() -> Any:
            return Changed()

        with patch.object(self, "service", changed):
            return await real(self, news, wait)

    change(stack, client.AsyncClient, "_send", send)


@mutant("closed tasks are trimmed at once")
def _(stack: ExitStack) -> None:
    real = MemoryBatch.trim_closed

    async def trim_closed(self: Any, before: int, limit: int) -> int:
        return await real(self, self._store.now(), limit)

    change(stack, MemoryBatch, "trim_closed", trim_closed)
