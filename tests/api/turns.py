"""A worker by hand: it polls for turns and appends what a test wants the code to have asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.client.base import Service
from perdure.core import messages as m
from perdure.core import pages
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.events import Event
from perdure.sdk.mint import mint_id
from tests.api.calls import INCARNATION, payload


class Hand:
    """Polls with rising numbers."""

    def __init__(self, service: Service, queue: str = "default", incarnation: int = INCARNATION) -> None:
        self._service = service
        self._queue = queue
        self._incarnation = incarnation
        self._polls = 0

    async def poll(self, wait: float = 5.0, capacity: int = 10) -> list[m.Delivery]:
        self._polls += 1
        body = m.Poll(self._incarnation, self._polls, [self._queue], capacity, wait, turns=True)
        return (await self._service.poll(body)).tasks

    async def turn(self) -> m.Delivery:
        """The next turn, of the only run that is ready."""
        [delivery] = await self.poll()
        assert delivery.turn is not None, delivery
        return delivery

    async def append(self, delivery: m.Delivery, *commands: t.TurnCommand, final: bool = True) -> w.Appended:
        assert delivery.turn is not None
        item = w.Append(delivery.lease, delivery.turn.started_event_id, list(commands), final)
        [answer] = (await self._service.append(w.Appends([item]))).outcomes
        return answer

    async def play(self, *commands: t.TurnCommand) -> m.Delivery:
        """A whole turn."""
        delivery = await self.turn()
        answer = await self.append(delivery, *commands)
        assert answer.error is None, answer
        return delivery

    async def answer(self, result: bytes = b'"fine"', **failed: Any) -> w.QueryWorkflow:
        """Take the job that asks a query, and answer it; what was asked."""
        [job] = await self.poll()
        assert job.type == w.QUERY
        done = m.Completion(
            job.lease, "failed" if failed else "succeeded", payload(result) if not failed else (), **failed
        )
        [answer] = (await self._service.complete(m.Complete([done]))).outcomes
        assert answer.error is None, answer
        return msgspec.msgpack.decode(job.payload[0].data, type=w.QueryWorkflow)


def start(id: str = "w", **options: Any) -> w.StartWorkflow:
    return w.StartWorkflow("fulfil", id, payload(), **options)


def signal(id: str = "w", name: str = "approve", **options: Any) -> w.SignalWorkflow:
    return w.SignalWorkflow(id, w.Signal(name, payload(b'"bob"')), **options)


def seen(delivery: m.Delivery) -> list[Event]:
    """The events that came with a turn."""
    assert delivery.turn is not None
    return [event for page in delivery.turn.pages for event in pages.unpack(page)]


def names(events: list[Event]) -> list[str]:
    return [type(event.attributes).__name__ for event in events]


async def history(service: Service, id: str = "w", **options: Any) -> list[Event]:
    reply = await service.history(w.History(id, **options))
    assert not reply.more
    return [event for page in reply.pages for event in pages.unpack(page)]


def timer(name: str = "nap", seconds: float = 3600.0) -> t.StartTimer:
    return t.StartTimer(task_id=mint_id(), timer_id=name, start_to_fire=seconds)


def activity(id: str = "1", type: str = "print_label", queue: str = "printers") -> t.ScheduleActivity:
    return t.ScheduleActivity(task_id=mint_id(), activity_id=id, activity_type=type, task_queue=queue)


def done(data: bytes = b"42") -> t.CompleteWorkflow:
    return t.CompleteWorkflow(result=payload(data))
