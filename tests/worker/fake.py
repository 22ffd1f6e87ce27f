"""A server for one worker, in memory: hands out what it is given, records what it is told."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from perdure import Context, task
from perdure.core import messages as m
from perdure.core.model import Payloads
from perdure.sdk.converter import from_payloads, to_payloads


@task
async def echo(ctx: Context, payload: Any) -> Any:
    return payload


@task
def echo_plain(ctx: Context, payload: Any) -> Any:
    return payload


class FakeService:
    """Heartbeats may come from another thread, all else comes on the loop it was made on."""

    def __init__(self, heartbeat: float = 0.02) -> None:
        self._loop = asyncio.get_running_loop()
        self._interval = heartbeat
        self._ready: deque[m.Delivery] = deque()
        self._changed = asyncio.Condition()
        self._leases = 0
        self.sessions: list[m.OpenSession] = []
        self.polls: list[m.Poll] = []
        self.asked = 0  #: capacity of the polls under way
        self.busy: Callable[[], int] = lambda: 0  #: handlers that run
        self.most_out = 0  #: most tasks that were promised or running at once
        self.running: set[bytes] = set()
        self.reports: dict[bytes, m.Completion] = {}
        self.requests: list[m.Complete] = []
        self.beats: list[m.Beat] = []
        self.beaten = threading.Condition()
        self.actions: dict[bytes, str] = {}
        self.nudges: list[str] = []  #: ids of tasks that the next answer to a nudge names
        self.closed: list[m.CloseSession] = []
        self.poll_faults: list[Exception] = []
        self.complete_faults: list[Exception] = []
        self.session_faults: list[Exception] = []
        self.judge: Callable[[m.Completion], m.Completed] = lambda completion: m.Completed("SUCCEEDED")
        self.gate = asyncio.Event()  #: completions wait for it
        self.gate.set()

    # ------------------------------------------------------------------------------------------------- for the test
    async def give(self, type: str, payload: Any = None, *, raw: Payloads | None = None, **fields: Any) -> bytes:
        """Enqueue a task; its lease."""
        (lease,) = await self._give([self._delivery(type, payload, raw, **fields)])
        return lease

    async def give_many(self, type: str, count: int) -> list[bytes]:
        """Enqueue tasks that one poll may get together; their leases."""
        return await self._give([self._delivery(type, n, None) for n in range(count)])

    async def _give(self, deliveries: list[m.Delivery]) -> list[bytes]:
        async with self._changed:
            self._ready.extend(deliveries)
            self._changed.notify_all()
        return [delivery.lease for delivery in deliveries]

    def _delivery(self, type: str, payload: Any, raw: Payloads | None, **fields: Any) -> m.Delivery:
        self._leases += 1
        return m.Delivery(
            task_id=f"task-{self._leases}",
            lease=b"lease-%d" % self._leases,
            type=type,
            queue="default",
            attempt=fields.pop("attempt", 1),
            max_attempts=5,
            payload=to_payloads(payload, "payload") if raw is None else raw,
            **fields,
        )

    async def reported(self, lease: bytes) -> m.Completion:
        """What the worker reported, once it has."""
        async with self._changed:
            await self._changed.wait_for(lambda: lease in self.reports)
        return self.reports[lease]

    async def result(self, lease: bytes) -> Any:
        report = await self.reported(lease)
        assert report.outcome == "succeeded", report
        return from_payloads(report.result, "result")

    def beats_of(self, lease: bytes) -> list[m.Beat]:
        return [beat for beat in self.beats if beat.lease == lease]

    async def beaten_for(self, lease: bytes, times: int = 1) -> None:
        """Returns when so many heartbeats named the lease."""
        await asyncio.to_thread(self.wait_for_beats, lease, times)

    def wait_for_beats(self, lease: bytes, times: int) -> bool:
        with self.beaten:
            return self.beaten.wait_for(lambda: len(self.beats_of(lease)) >= times, timeout=20)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    # ---------------------------------------------------------------------------------------------------- a Service
    async def open_session(self, body: m.OpenSession) -> m.SessionReply:
        self.sessions.append(body)
        if self.session_faults:
            raise self.session_faults.pop(0)
        return m.SessionReply(heartbeat=self._interval, lease=30.0)

    async def poll(self, body: m.Poll) -> m.PollReply:
        async with self._changed:
            self.polls.append(body)
            self._changed.notify_all()
            if self.poll_faults:
                raise self.poll_faults.pop(0)
            self.asked += body.capacity
            self._note()
            try:
                await self._changed.wait_for(lambda: bool(self._ready))
            finally:
                self.asked -= body.capacity
            taken = [self._ready.popleft() for _ in range(min(body.capacity, len(self._ready)))]
            self.running.update(delivery.lease for delivery in taken)
            self._note()
            return m.PollReply(taken)

    def _note(self) -> None:
        self.most_out = max(self.most_out, self.asked + self.busy())

    async def heartbeat(self, body: m.Heartbeat) -> m.HeartbeatReply:
        with self.beaten:
            self.beats.extend(body.beats)
            self.beaten.notify_all()
        return m.HeartbeatReply([self.actions.get(beat.lease, "continue") for beat in body.beats])

    async def complete(self, body: m.Complete) -> m.CompleteReply:
        self.requests.append(body)
        async with self._changed:
            self._changed.notify_all()
        await self.gate.wait()
        if self.complete_faults:
            raise self.complete_faults.pop(0)
        outcomes = [self.judge(completion) for completion in body.completions]
        async with self._changed:
            for completion, outcome in zip(body.completions, outcomes, strict=True):
                if outcome.error is None:
                    assert completion.lease not in self.reports, "reported twice"
                    self.reports[completion.lease] = completion
                    self.running.discard(completion.lease)
            self._changed.notify_all()
        return m.CompleteReply(outcomes)

    async def nudge(self, body: m.Nudge) -> m.NudgeReply:
        while not self.nudges:
            await asyncio.sleep(0.005)
        ids, self.nudges = self.nudges, []
        return m.NudgeReply(ids)

    async def close_session(self, body: m.CloseSession) -> m.Done:
        self.closed.append(body)
        return m.Done()

    async def close(self) -> None: ...


class Gate:
    """Handlers that wait at it, async and plain."""

    def __init__(self) -> None:
        self.inside = 0  #: came in so far
        self.left = 0
        self.open = asyncio.Event()
        self.open_plain = threading.Event()
        self._lock = threading.Lock()

        @task(name="at_gate")
        async def at_gate(ctx: Context, payload: Any) -> Any:
            self.inside += 1
            await self.open.wait()
            self.left += 1
            return payload

        @task(name="at_gate_plain")
        def at_gate_plain(ctx: Context, payload: Any) -> Any:
            self.inside += 1
            self.open_plain.wait()
            with self._lock:
                self.left += 1
            return payload

    async def holds(self, handlers: int) -> None:
        while self.inside < handlers:
            await asyncio.sleep(0.001)
