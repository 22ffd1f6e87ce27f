"""Short forms for limits in tests of the engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core.limit_rules import Limit, LimitName, Limits
from perdure.core.model import SECOND, Task
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive


async def put(drive: Drive, scope: str, name: str = "", **fields: Any) -> Limit:
    """Make or replace a limit of the default namespace; `per` in seconds."""
    if "per" in fields:
        fields["per"] = int(fields["per"] * SECOND)
    outcome = await drive.one(c.PutLimit(limit=Limit("default", scope, name, **fields)))
    assert isinstance(outcome, c.LimitIs)
    assert outcome.limit is not None
    return outcome.limit


async def delete(drive: Drive, scope: str, name: str = "") -> None:
    await drive.one(c.DeleteLimit(name=("default", scope, name)))


async def pause(drive: Drive, scope: str, name: str, note: str = "", *, paused: bool = True) -> Limit | None:
    named: LimitName = ("default", scope, name)
    outcome: c.LimitIs = await drive.one(c.PauseLimit(name=named, paused=paused, note=note))
    return outcome.limit


async def complete(drive: Drive, task: Task, outcome: str = "succeeded", **fields: Any) -> State:
    """End a lease by the token that its worker has."""
    lease = replace(task.lease, job=not drive.engine.flow.is_limited(task))
    changed: c.Changed = await drive.one(c.Complete(lease=lease, outcome=outcome, **fields))
    return State(changed.state)


async def look(drive: Drive, clock: SteppedClock | None = None, seconds: float = 0) -> None:
    """Time passes, and the service that puts blocked tasks back looks at everything."""
    if clock is not None:
        clock.advance(seconds)
    service = drive.engine.flow
    service._look_at = 0.0
    service._due.update(dict.fromkeys(service.known.suspects, 0.0))
    for _ in range(100):
        if await service.run_once() > 0:
            break


async def poll_all(drive: Drive, capacity: int = 100, *queues: str) -> list[Task]:
    """Everything that may start now, over as many polls as it takes."""
    got: list[Task] = []
    empty = 0
    while empty < 2:
        more = await drive.poll(capacity, *queues)
        got += more
        empty = 0 if more else empty + 1
    return got


async def occupied(drive: Drive) -> Counter[str]:
    """Slots taken, by subject."""
    running = await drive.engine.store.count_running("default")
    return Counter(Limits(await drive.engine.store.limits()).occupied(running))
