"""Mistakes with events that go out: what is not told, or told twice, or too early."""

from __future__ import annotations

from contextlib import ExitStack
from copy import copy
from typing import Any

from perdure.api import events as api
from perdure.core import webhooks
from perdure.core.outbox import Cursor
from perdure.engine import outbox
from perdure.engine.webhooks import Webhooks
from perdure.store.memory import MemoryBatch, MemoryStore
from perdure.store.memory_outbox import OutboxBatch
from tests.sim.mutants.registry import change, mutant


@mutant("an event is written beside the transaction that it tells of")
def _(stack: ExitStack) -> None:
    def publish(self: Any, events: Any) -> None:
        self._tables.outbox.add([copy(event) for event in events])

    change(stack, OutboxBatch, "_publish", publish)


@mutant("successes that are written without a look at their rows have no event")
def _(stack: ExitStack) -> None:
    async def publish_closed(self: Any, *given: Any) -> None:
        await self._begin()

    change(stack, MemoryBatch, "publish_closed", publish_closed)


@mutant("no batch waits until its server knows whose events are recorded")
def _(stack: ExitStack) -> None:
    async def recorded(self: Any) -> frozenset[str]:
        namespaces: frozenset[str] = self.namespaces
        return namespaces

    real = outbox.Outbox.run_once

    async def run_once(self: Any) -> float:
        if not hasattr(self, "begun"):
            self.begun = True
            return outbox.LOOK
        return await real(self)

    change(stack, outbox.Outbox, "recorded", recorded)
    change(stack, outbox.Outbox, "run_once", run_once)


@mutant("a reader goes on behind all events that there are, and not behind those that it got")
def _(stack: ExitStack) -> None:
    real = api.page

    async def page(engine: Any, namespace: str, *given: Any) -> Any:
        found = await real(engine, namespace, *given)
        found.cursor = (await engine.store.feed(namespace)).end.text
        return found

    change(stack, api, "page", page)


@mutant("the cursor of a webhook moves before the answer")
def _(stack: ExitStack) -> None:
    real = Webhooks._post

    async def post(self: Any, hook: Any, type_: str, id_: str, body: bytes) -> str:
        if type_ != "ping":
            await self._put(webhooks.passed(hook, Cursor(*(int(part, 16) for part in id_.split("-")))))
        return await real(self, hook, type_, id_, body)

    change(stack, Webhooks, "_post", post)


@mutant("an event that an endpoint does not take is passed over")
def _(stack: ExitStack) -> None:
    real = webhooks.failed

    def failed(hook: Any, cursor: Cursor, *given: Any) -> Any:
        after, letter = real(hook, cursor, *given)
        return webhooks.passed(after, cursor), letter

    change(stack, webhooks, "failed", failed)


@mutant("two servers send to one endpoint")
def _(stack: ExitStack) -> None:
    change(stack, Webhooks, "_is_due", lambda self, hook, now: hook.disabled_at is None and (hook.retry_at or 0) <= now)

    async def take(self: Any, id: str, owner: int, until: int, now: int) -> Any:
        await self.pause()
        hook = self._tables.outbox.webhooks[id]
        hook.lease_owner, hook.lease_until = owner, until
        return copy(hook)

    async def put(self: Any, hook: Any, owner: int | None) -> bool:
        await self.pause()
        self._tables.outbox.webhooks[hook.id] = copy(hook)
        return True

    change(stack, MemoryStore, "take_webhook", take)
    change(stack, MemoryStore, "put_webhook", put)
