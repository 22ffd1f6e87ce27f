"""Constant statements per batch of workflow commands, for 1 and for 50 runs (DESIGN section 3, X: budgets)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import turn_commands as t
from perdure.core.events import WorkflowExecutionSignaled
from perdure.core.lanes import TURNS, lane
from perdure.core.model import pack
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows, Turn, activity, payload, start, timer
from tests.engine.test_budgets import Counter, counter, drive  # noqa: F401  # the fixtures

LANES = (lane("default", "default", TURNS), lane("default", "default"))


@pytest.fixture
async def counts(drive: Drive, counter: Counter) -> dict[str, list[int]]:  # noqa: F811
    return {}


async def test_print(drive: Drive, counter: Counter, clock: SteppedClock) -> None:  # noqa: F811
    for count in (1, 50):
        flows = Flows(drive)
        ids = [f"{count}-{n}" for n in range(count)]
        seen = {}

        async def measure(name: str, work: Awaitable[Any]) -> Any:
            box = []
            async def w() -> None:
                box.append(await work)
            seen[name] = await counter.during(w())
            return box[0]

        await flows.turns()
        await measure("start", drive.engine.apply([start(i) for i in ids]))
        turns = await measure("claim", flows.turns(50))
        assert len(turns) == count
        done = await measure("step", drive.engine.apply([x.command(t.StartStep(step_id=1, name="a"), final=False) for x in turns]))
        for x, d in zip(turns, done): x.after = d.last
        done = await measure("wait", drive.engine.apply([x.command(t.CompleteStep(step_id=1), activity("a"), timer("t", 5.0)) for x in turns]))
        work = await drive.poll(50)
        assert len(work) == count
        await measure("activity", drive.engine.apply([c.Complete(lease=w.lease, outcome="succeeded", result=pack(payload("7"))) for w in work]))
        clock.advance(6)
        if type(drive.engine.store).__name__ == "PostgresStore":
            pass
        await measure("signal", drive.engine.apply([c.Tell(namespace="default", workflow_id=i, message=WorkflowExecutionSignaled(signal_name="s")) for i in ids]))
        await measure("signal r", drive.engine.apply([c.Tell(namespace="default", workflow_id=i, request_id="r", message=WorkflowExecutionSignaled(signal_name="s")) for i in ids]))
        turns = await measure("claim 2", flows.turns(50))
        assert len(turns) == count
        if type(drive.engine.store).__name__ == "PostgresStore": await asyncio.sleep(5.2)
        await measure("fire", drive.engine.apply([c.Ring(limit=100)]))
        done = await measure("complete", drive.engine.apply([x.command() for x in turns]))
        turns = await flows.turns(50)
        assert all("TimerFired" in x.names for x in turns)
        done = await measure("complete", drive.engine.apply([x.command(DONE) for x in turns]))
        print(count, seen, done[0])
