"""`advance`: what core/advance.py says, in one statement that looks at nothing but what the append names."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from perdure.core import advance as rule
from perdure.core import pages, turns
from perdure.core import turn_commands as t
from perdure.core.commands import Append, Appended
from perdure.core.events import WorkflowExecutionStarted
from perdure.core.ids import Mint
from perdure.core.model import Failure, Lease, Payload, Task
from perdure.core.rounds import Rounds
from perdure.core.run import Run
from perdure.core.states import Kind, State
from perdure.store.base import Store
from tests.clock import START, SteppedClock
from tests.store.rows import changed, insert, leased, new_task, read, task_id
from tests.store.runs import new_run, page

STEPS: dict[str, list[t.TurnCommand]] = {
    "a claim": [t.StartStep(step_id=2, name="a", attempt=3)],
    "an end": [t.CompleteStep(step_id=1, result=(Payload({"encoding": "json/plain"}, b"1"),))],
    "an end and a claim": [t.CompleteStep(step_id=1, held=True), t.StartStep(step_id=2, name="b")],
    "large": [t.CompleteStep(step_id=1, result=(Payload({}, b"x" * 5_000),))],
    "failures": [
        t.FailStep(step_id=1, failure=Failure(message="m"), attempt=2, retry_in=1.5),
        t.FailStep(step_id=2, failure=Failure(message="m"), held=True),
    ],
}
RUN: dict[str, Any] = {
    "event_count": 5, "history_bytes": 100, "turn_written": 5, "turn_prepared_at": START + 1,
    "turn_scheduled_at": START,
}  # fmt: skip


def append(n: int, commands: list[t.TurnCommand], after: int = 5, **fields: Any) -> Append:
    given: dict[str, Any] = {"completed_event_id": 5, "identity": "w1", "final": False}
    return Append(lease=Lease(task_id(n), 1, 77, False), after=after, commands=commands, **(given | fields))


async def in_turn(store: Store, n: int, task: dict[str, Any] | None = None, **run: Any) -> Task:
    """A leased run whose turn has been written."""
    row = changed(leased(new_task(n, kind=Kind.WORKFLOW)), **(task or {}))
    await insert(store, row)
    async with store.batch() as batch:
        await batch.lock([row.id])
        await batch.put_runs([new_run(n, f"w{n}", **(RUN | run))])
        await batch.append([page(n, 1, 5)])
    return row


async def advance(store: Store, *appends: Append, single: bool = False) -> dict[bytes, bool]:
    async with store.batch(single=single) as batch:
        return await batch.advance([rule.advance(one, batch.now) for one in appends])


async def run_of(store: Store, n: int) -> Run:
    return (await store.run_rows([task_id(n)]))[task_id(n)]


def never() -> WorkflowExecutionStarted:
    raise AssertionError


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("steps", STEPS)
async def test_it_leaves_what_the_slow_way_leaves(store: Store, clock: SteppedClock, steps: str, single: bool) -> None:
    """STEP-11, LEASE-05: the same row, run and events as by lock, decide and put."""
    commands = STEPS[steps]
    await in_turn(store, 1, inbox_count=2, turn_inbox=1)
    await in_turn(store, 2, inbox_count=2, turn_inbox=1)
    before = await read(store, 1)
    clock.advance(2)
    wanted = append(1, commands)
    assert rule.is_advance(wanted, 1_000)
    async with store.batch() as batch:
        held = (await batch.lock([task_id(2)]))[task_id(2)]
        run = (await batch.runs([task_id(2)]))[task_id(2)]
        effects, outcome = turns.append(
            held, run, (), append(2, commands), rows={}, taken=(), first=never, now=batch.now, mint=Mint(),
            rounds=Rounds(), max_events=1_000,
        )  # fmt: skip
        appended, put = effects
        await batch.put_runs([put.run])  # type: ignore[union-attr]
        await batch.append([appended.page])  # type: ignore[union-attr]
    waiting = await advance(store, wanted, single=single)
    run = await run_of(store, 1)
    assert outcome == Appended(task_id(2), State.LEASED, run.event_count, waiting[task_id(1)])
    assert asdict(run) == asdict(await run_of(store, 2)) | {
        "id": task_id(1), "workflow_id": "w1", "first_run_id": task_id(1), "original_run_id": task_id(1),
    }  # fmt: skip
    assert await read(store, 1) == before
    found = await store.histories({task_id(n): 5 for n in (1, 2)}, 10)
    [mine], [twin] = found[task_id(1)], found[task_id(2)]
    assert mine == replace(twin, run_id=task_id(1))
    assert pages.unpack(mine.data)[0].time == clock.now()


@pytest.mark.parametrize(("inbox_count", "waits"), [(0, False), (3, False), (4, True)])
async def test_it_says_whether_messages_wait(store: Store, clock: SteppedClock, inbox_count: int, waits: bool) -> None:
    """SIG-02: the turn in hand sees messages up to the third."""
    await in_turn(store, 1, inbox_count=inbox_count, turn_inbox=3)
    clock.advance(1)
    assert await advance(store, append(1, STEPS["an end"])) == {task_id(1): waits}


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another lease": ({"lease_number": 2}, {}),
    "other bits": ({"lease_bits": -77}, {}),
    "no lease": ({"state": State.WAITING}, {}),
    "another worker": ({"worker": "w2"}, {}),
    "no worker": ({"worker": None}, {}),
    "a row from a later clock": ({"updated_at": START + 90_000_000}, {}),
    "a turn from a later clock": ({}, {"turn_prepared_at": START + 90_000_000}),
    "no turn": ({}, {"turn_prepared_at": None}),
    "a turn not written": ({}, {"turn_written": 0}),
    "another turn": ({}, {"turn_written": 4}),
    "written before": ({}, {"event_count": 6}),
    "events missing": ({}, {"event_count": 4}),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_what_it_does_not_fit_is_left_alone(store: Store, clock: SteppedClock, other: str) -> None:
    """LEASE-05: for each run by itself."""
    task, run = OTHERS[other]
    await in_turn(store, 1, task, **run)
    await in_turn(store, 2)
    before = await read(store, 1), await run_of(store, 1)
    clock.advance(1)
    both = [append(n, STEPS["a claim"]) for n in (1, 2)]
    assert await advance(store, *both) == {task_id(2): False}
    assert (await read(store, 1), await run_of(store, 1)) == before
    assert list(await store.histories({task_id(n): 5 for n in (1, 2)}, 10)) == [task_id(2)]
    assert await advance(store, *both) == {}, "the second time it was written before"


async def test_what_is_no_run_is_left_alone(store: Store, clock: SteppedClock) -> None:
    await insert(store, leased(new_task(1)), new_task(2))
    clock.advance(1)
    assert await advance(store, *(append(n, STEPS["a claim"]) for n in (1, 2, 3))) == {}


async def test_many_in_all_chunks(store: Store, clock: SteppedClock) -> None:
    """Statements of SQLite take fixed numbers of rows: one stale append in some of them hides no other."""
    stale = {3, 203, 269}
    for n in range(1, 271):
        await in_turn(store, n, event_count=9 if n in stale else 5)
    clock.advance(1)
    wanted = [append(n, STEPS["an end and a claim"]) for n in range(1, 271)]
    assert await advance(store, *wanted) == {task_id(n): False for n in range(1, 271) if n not in stale}
    runs = await store.run_rows([task_id(n) for n in range(1, 271)])
    assert {run.event_count for run in runs.values()} == {7, 9}


async def test_nothing_to_do(store: Store) -> None:
    assert await advance(store) == {}


async def test_what_is_held_elsewhere_is_left_alone(shared: Store, clock: SteppedClock) -> None:
    """LEASE-08."""
    for n in (1, 2):
        await in_turn(shared, n)
    clock.advance(1)
    async with shared.batch() as one, shared.batch() as two:
        await one.lock([task_id(1)])
        wanted = [rule.advance(append(n, STEPS["a claim"]), two.now) for n in (1, 2)]
        assert await two.advance(wanted) == {task_id(2): False}
    assert (await run_of(shared, 1)).event_count == 5


@pytest.mark.parametrize(
    ("commands", "fields"),
    [
        ([], {}),
        ([t.StartStep(step_id=1, name="a"), t.StartTimer(task_id=bytes(16), timer_id="t", start_to_fire=1)], {}),
        ([t.StartStep(step_id=1, name="a"), t.CompleteWorkflow()], {}),
        ([t.StartStep(step_id=1, name="a")], {"final": True}),
        ([t.StartStep(step_id=1, name="a")], {"completed_event_id": 0}),
        ([t.StartStep(step_id=1, name="a")], {"identity": ""}),
        ([t.StartStep(step_id=1, name="a")], {"after": 1_000}),
        ([t.StartStep(step_id=1, name="a")], {"after": 599}),
    ],
)
def test_which_appends_need_a_look_at_their_run(commands: list[t.TurnCommand], fields: dict[str, Any]) -> None:
    """RPLY-26 for the last two: it is full, or to be warned of."""
    wanted = append(1, commands)
    for name, value in fields.items():
        setattr(wanted, name, value)
    assert not rule.is_advance(wanted, 1_000)


def test_a_run_is_never_changed_in_place() -> None:
    run = new_run(1, **RUN)
    before = copy(run)
    after = rule.advanced(run, rule.advance(append(1, STEPS["a claim"]), START + 2))
    assert run == before
    assert (after.event_count, after.turn_prepared_at) == (6, START + 2)
