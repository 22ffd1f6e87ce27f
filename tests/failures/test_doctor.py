"""The standing checks, on every store: OPS-01 to OPS-03, OPS-07. What must never be is made by writing rows that no
decision would write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core import doctor
from perdure.core.doctor import IDLE, SILENT
from perdure.core.doctor_messages import Finding
from perdure.core.model import SECOND, RetryPolicy, pack
from perdure.core.owners import QueueOwner
from perdure.core.states import Kind, State
from perdure.engine.doctor import Doctor
from perdure.store.base import Store
from tests.clock import START, SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import Flows
from tests.store.rows import insert, leased, new_session, new_task, task_id
from tests.store.runs import insert_runs, new_run


@pytest.fixture
def found(store: Store, clock: SteppedClock) -> Any:
    """What the checks find, by name of the check."""

    async def examine() -> dict[str, list[Finding]]:
        reply = await Doctor(store, clock.now).examine()
        names: dict[str, list[Finding]] = {}
        for finding in reply.findings:
            assert finding.check in reply.checks
            assert finding.advice.endswith(".") and finding.detail
            names.setdefault(finding.check, []).append(finding)
        return names

    return examine


@pytest.fixture
async def worker(store: Store, owner: None) -> AsyncIterator[None]:
    async with store.batch() as batch:
        await batch.put_session(new_session(1))
    yield


@pytest.fixture
async def owner(store: Store) -> None:
    """Of the queue of these tests."""
    await store.put_queue_owner(QueueOwner("default", "default", "we", 3, START))


async def test_nothing_is_found_where_nothing_is_wrong(
    drive: Drive, found: Any, clock: SteppedClock, worker: None
) -> None:
    """Jobs in every state, and runs that wait for something."""
    flows = Flows(drive)
    await drive.enqueue()
    await drive.enqueue(delay=60)
    await drive.fail(await drive.lease())
    await drive.enqueue(retry=RetryPolicy(max_attempts=1))
    await drive.fail(await drive.lease())
    await flows.start("waits")
    await (await flows.turn()).append()
    await flows.signal("go", "waits")
    await flows.start("new")
    assert await found() == {}


async def test_rows_that_nothing_would_make_go_on(store: Store, found: Any) -> None:
    """OPS-03."""
    await insert(
        store,
        *(new_task(n, place=None) for n in range(1, 8)),
        new_task(8, place=None, state=State.WAITING, kind=Kind.TIMER, type="timer"),
        new_task(9, place=None, state=State.WAITING, kind=Kind.UPDATE, type="update"),
    )
    lost = (await found())["lost"]
    assert [(one.count, len(one.examples), one.namespace) for one in lost] == [(7, 5, "default"), (1, 1, "default")]
    assert "'email'" in lost[0].detail
    assert "report" in lost[0].advice


async def test_messages_that_nobody_sees(store: Store, found: Any) -> None:
    await insert_runs(store, new_run(1, inbox_count=3, inbox_taken=2), new_run(2, inbox_count=2, inbox_taken=2))
    await wait(store, 1, 2)
    assert [one.examples for one in (await found())["unseen_messages"]] == [[text(1)]]


async def test_children_that_are_not_what_their_parent_says(store: Store, found: Any) -> None:
    await insert_runs(store, new_run(1, children=2), new_run(2, children=1), new_run(3))
    await insert(store, *(child(n, parent) for n, parent in ((11, 1), (12, 2), (13, 3))))
    await wait(store, 1, 2, 3)
    assert sorted((await found())["children"][0].examples) == [text(1), text(3)]


def child(n: int, parent: int) -> Any:
    return new_task(
        n, kind=Kind.TIMER, state=State.WAITING, place=None, wake_at=START + SECOND, parent_run_id=task_id(parent)
    )


def text(n: int) -> str:
    return f"00000000-0000-0000-0000-{n:012x}"


async def wait(store: Store, *runs: int) -> None:
    """These runs wait."""
    async with store.batch() as batch:
        for task in (await batch.lock([task_id(n) for n in runs])).values():
            task.state, task.place = State.WAITING, None
            await batch.change([task])


async def test_a_change_between_two_reads_is_no_finding(store: Store, found: Any, clock: SteppedClock) -> None:
    """A run and its row are read one after the other: what happens between them must not look like a fault."""
    await insert_runs(store, new_run(1, inbox_count=3, inbox_taken=2))
    await wait(store, 1)
    suspects = store.suspects

    async def late(*given: Any) -> Any:
        answer = await suspects(*given)
        async with store.batch() as batch:
            task = (await batch.lock([task_id(1)]))[task_id(1)]
            task.updated_at += 1
            await batch.change([task])
        return answer

    store.suspects = late  # type: ignore[method-assign, assignment]
    assert "unseen_messages" not in await found()


async def test_runs_whose_turns_fail_and_runs_that_wait_for_long(
    drive: Drive, found: Any, clock: SteppedClock, worker: None
) -> None:
    """OPS-13, EX-34: found by type and age."""
    flows = Flows(drive)
    await flows.start("stuck")
    turn = await flows.turn()
    await drive.fail(turn.task, "no such step")
    for n in range(3):
        await flows.start(f"idle{n}")
    for turn in await flows.turns():
        await turn.append()
    names = await found()
    assert [one.count for one in names["failing_turns"]] == [1]
    assert "idle_runs" not in names
    clock.advance(IDLE / SECOND)
    [idle] = (await found())["idle_runs"]
    assert (idle.count, "'flow'" in idle.detail) == (3, True)


async def test_jobs_at_work_without_a_sign_of_how_far_they_are(drive: Drive, found: Any, clock: SteppedClock) -> None:
    """OPS-07: more than two minutes without progress or checkpoint."""
    silent, tells = await drive.lease_new(), await drive.lease_new()
    for task in (silent, tells):
        await drive.beat(task)
    await drive.beat(tells, checkpoint=pack([]))
    for _ in range(int(SILENT / SECOND) // 20):
        clock.advance(20)
        assert not await drive.beat(silent)
        assert not await drive.beat(tells)
    [finding] = (await found())["no_checkpoint"]
    assert finding.count == 1
    clock.advance(-1)
    assert "no_checkpoint" not in await found()


async def test_queues_without_a_worker(drive: Drive, found: Any, store: Store, worker: None) -> None:
    """OPS-02."""
    await drive.enqueue(queue="mail")
    await drive.enqueue()
    [finding] = (await found())["no_worker"]
    assert "'mail'" in finding.detail
    async with store.batch() as batch:
        await batch.put_session(new_session(2, namespace="other", queues="mail"))
    assert len((await found())["no_worker"]) == 1
    async with store.batch() as batch:
        await batch.put_session(new_session(3, queues="mail\ndefault"))
    assert "no_worker" not in await found()


async def test_OPS_02_queues_without_an_owner_and_queues_that_are_too_deep(
    drive: Drive, found: Any, store: Store, owner: None
) -> None:
    for queue in ("mail", "default", "default", "default"):
        await drive.enqueue(queue=queue)
    async with store.batch() as batch:
        await batch.put_session(new_session(2, namespace="other", queues="mail\nfiles"))
    names = await found()
    assert {(one.namespace, *one.examples) for one in names["no_owner"]} == {
        ("default", "mail"),
        ("other", "files", "mail"),
    }
    assert "queue_depth" not in names
    await drive.enqueue()
    [deep] = (await found())["queue_depth"]
    assert (deep.count, deep.namespace) == (4, "default") and "'default' of we" in deep.detail


async def test_dead_letters_that_nobody_has_read(drive: Drive, found: Any, clock: SteppedClock) -> None:
    await drive.enqueue(retry=RetryPolicy(max_attempts=1))
    task = await drive.lease()
    await drive.fail(task)
    clock.advance(IDLE / SECOND - 1)
    assert "unread_failures" not in await found()
    clock.advance(2)
    [finding] = (await found())["unread_failures"]
    assert (finding.count, len(finding.examples)) == (1, 1)


async def test_sessions_that_do_not_end_and_alarms_that_are_late(
    drive: Drive, found: Any, store: Store, clock: SteppedClock, owner: None
) -> None:
    async with store.batch() as batch:
        await batch.put_session(new_session(1, ends_at=START))
    await drive.enqueue(delay=1)
    clock.advance(30)
    assert await found() == {}
    clock.advance(60)
    assert {"sessions", "alarms"} <= (await found()).keys()


async def test_clocks_that_differ(store: Store, clock: SteppedClock) -> None:
    for skew, word in ((60, "behind"), (-60, "ahead of")):
        reply = await Doctor(store, lambda skew=skew: clock.now() + skew * SECOND).examine()  # type: ignore[misc]
        [finding] = reply.findings
        assert (finding.check, word in finding.detail) == ("clock", True)


async def test_settings_by_which_answers_are_lost(store: Store, found: Any) -> None:
    async def settings() -> dict[str, str]:
        return {"fsync": "off", "synchronous_commit": "on", "synchronous": "1", "other": "x"}

    store.settings = settings  # type: ignore[method-assign]
    assert [one.detail for one in (await found())["settings"]] == [
        "the database runs with fsync = off",
        "the database runs with synchronous = 1",
    ]


async def test_one_server_an_hour_runs_the_checks(
    store: Store, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.engine.doctor.FIRST", (0.0, 0.0))
    ran: list[int] = []

    class Counted(Doctor):
        async def examine(self) -> Any:
            ran.append(1)
            return await super().examine()

    for _ in range(3):
        assert await Counted(store, clock.now).run_once() == 3_600
    assert len(ran) == 1
    clock.advance(3_600)
    await Counted(store, clock.now).run_once()
    assert len(ran) == 2


async def test_no_check_is_due_before_its_time(store: Store, clock: SteppedClock) -> None:
    late = Doctor(store, clock.now)
    assert 50 < await late.run_once() <= 180


def test_what_is_looked_at_is_bounded() -> None:
    """A million rows, then the report says that there were more."""
    task = new_task(1, place=None, state=State.WAITING, kind=Kind.WORKFLOW)
    run = replace(new_run(1), paused=True, inbox_count=9)
    assert doctor.looked(task, run, START) == []
    assert doctor.looked(leased(task), None, START) == []
