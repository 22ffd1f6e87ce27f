"""Tasks and commands for the tests of the rules."""

from __future__ import annotations

import random
from typing import Any

from perdure.core import commands, decide
from perdure.core.effects import Change, Close, Effect, Insert, Lease, Record
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Attempt, Failure, RetryPolicy, Task, Timeouts, pack
from perdure.core.rounds import Rounds
from perdure.core.states import State
from tests.clock import START

FAILURE = pack(Failure(message="boom", type="ValueError"))


def new_mint(seed: int = 1) -> Mint:
    return Mint(random.Random(seed))


def new_rounds() -> Rounds:
    rounds = Rounds()
    rounds.learn("lane", 0, 0)
    return rounds


def enqueue_command(
    *, task_id: bytes = b"0123456789abcdef", retry: RetryPolicy | None = None, timeouts: Timeouts | None = None,
    delay: float = 0.0, run_at: int | None = None, max_attempts: int | None = None,
) -> commands.Enqueue:  # fmt: skip
    """As the service makes it from what a caller wrote."""
    limits = timeouts or Timeouts()
    draft = Task(
        id=b"", namespace="default", type="email", state=State.ENQUEUED, lane="lane", created_at=0, updated_at=0,
        payload=b"payload", headers=b"headers", run_at=run_at, retry_policy=None if retry is None else pack(retry),
        timeouts=None if timeouts is None else pack(timeouts), max_attempts=max_attempts or (retry or
        RetryPolicy()).max_attempts, lease_length=int((limits.lease or 30) * SECOND),
    )  # fmt: skip

    def micros(seconds: float | None) -> int | None:
        return None if seconds is None else int(seconds * SECOND)

    return commands.Enqueue(
        draft=draft, delay=int(delay * SECOND), schedule_to_start=micros(limits.schedule_to_start),
        schedule_to_close=micros(limits.schedule_to_close), task_id=task_id,
    )  # fmt: skip


def new_task(now: int = START, **options: Any) -> Task:
    return decide.enqueue(enqueue_command(**options), now, new_rounds()).task


def claimed(task: Task, now: int = START, session: int = 7) -> Task:
    return decide.claim(task, session, "w1", 1, now, new_mint(task.lease_number).lease_bits()).task


def received(task: Task, now: int = START) -> Task:
    return decide.beat(task, commands.Heartbeat(lease=task.lease), now)


def running(now: int = START, **options: Any) -> Task:
    """A task whose worker has acknowledged it."""
    return received(claimed(new_task(now, **options), now), now)


def completion(task: Task, outcome: str, **fields: Any) -> commands.Complete:
    if outcome == "failed":
        fields = {"failure": FAILURE, "failure_type": "ValueError"} | fields
    return commands.Complete(lease=task.lease, outcome=outcome, **fields)


def complete(task: Task, outcome: str, now: int = START, **fields: Any) -> Task:
    effects, _ = decide.complete(task, completion(task, outcome, **fields), now, new_mint(), new_rounds())
    return after(effects)


def ring(task: Task, now: int, hold_until: int = 0) -> Task:
    return after(decide.ring(task, now, new_mint(), new_rounds(), hold_until))


def after(effects: list[Effect]) -> Task:
    """The task as the effects leave it."""
    [task] = [effect.task for effect in effects if isinstance(effect, Insert | Lease | Change | Close)]
    return task


def attempts(effects: list[Effect]) -> list[Attempt]:
    return [effect.attempt for effect in effects if isinstance(effect, Record)]
