"""Groups in the code of workflows, of both styles, with a real worker and on both databases: STEP-18 to STEP-28."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import ActivityError, AsyncPerdure, task
from perdure.core.errors import IllegalMove, InvalidArgument, NotFound, TaskFailed
from perdure.core.events import ActivityTaskCompleted, GroupCancelRequested, GroupCompleted, GroupFailed, GroupStarted
from perdure.sdk import groups
from perdure.sdk.history import WorkflowHistory
from perdure.sdk.workflow import workflow
from perdure.worker.replay import Replayer


@task(name="groups.double", retries=0)
async def double(ctx: Any, number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return 2 * number


@task(name="groups.other", retries=0)
async def other(ctx: Any, text: str) -> str:
    return text.upper()


def length(text: str) -> int:
    return len(text)


@workflow(name="groups.doubled")
async def doubled(ctx: Any, numbers: list[int]) -> list[int]:
    found: list[int] = await ctx.map("double", double, numbers)
    return found


@workflow(name="groups.doubled_plain")
def doubled_plain(ctx: Any, numbers: list[int]) -> list[int]:
    found: list[int] = ctx.map("double", double, numbers)
    ctx.sleep(0.01)
    return found


@workflow(name="groups.collected")
async def collected(ctx: Any, numbers: list[int]) -> list[Any]:
    found = await ctx.parallel("double", [(double, n) for n in numbers], policy="collect", window=5)
    return [one.failure.message if isinstance(one, ActivityError) else one for one in found]


@workflow(name="groups.collected_plain")
def collected_plain(ctx: Any, numbers: list[int]) -> list[Any]:
    found = ctx.parallel("double", [(double, n) for n in numbers], policy="collect", window=5)
    return [one.failure.message if isinstance(one, ActivityError) else one for one in found]


@workflow(name="groups.mixed")
async def mixed(ctx: Any, count: int) -> list[Any]:
    branches: list[tuple[Any, ...]] = []
    for number in range(count):
        branches += [(double, number), (length, "x" * (number % 7)), (other, f"t{number}")]
    found: list[Any] = await ctx.parallel("mixed", branches)
    return found


@workflow(name="groups.asked")
async def asked(ctx: Any, numbers: list[int]) -> Any:
    total = [0]
    ctx.on_query("total", lambda: total[0])
    total[0] = sum(await ctx.map("double", double, numbers))
    answer = await ctx.wait_for_signal("go")
    return [total[0], answer]


@workflow(name="groups.asked_plain")
def asked_plain(ctx: Any, numbers: list[int]) -> Any:
    total = [0]
    ctx.on_query("total", lambda: total[0])
    total[0] = sum(ctx.map("double", double, numbers))
    answer = ctx.wait_for_signal("go")
    return [total[0], answer]


@workflow(name="groups.given_up")
async def given_up(ctx: Any, count: int) -> str:
    try:
        async with asyncio.timeout(0.2):
            await ctx.map("never", nobody, range(count))
    except TimeoutError:
        return "gave up"
    return "done"


@task(name="groups.nobody", queue="groups_nobody")
async def nobody(ctx: Any, number: int) -> None: ...


@task(name="groups.later", retries=0, timeout="1m")
async def later(ctx: Any, number: int) -> Any:
    ctx.complete_later()


@workflow(name="groups.outside")
async def outside(ctx: Any, count: int) -> list[Any]:
    found: list[Any] = await ctx.map("later", later, range(count))
    return found


@workflow(name="groups.large")
def large(ctx: Any, count: int) -> int:
    numbers = ctx.parallel("double", [(double, n) for n in range(count)])
    ctx.wait_for_signal("go")
    return sum(numbers)


STYLES = ["", "_plain"]


@pytest.mark.parametrize("style", STYLES)
async def test_results_are_in_the_order_of_the_calls(app: AsyncPerdure, style: str) -> None:
    """STEP-28; the history has three events for the group, and a replay of it finds the same results (RPLY-38)."""
    numbers = list(range(500))
    async with app.worker(), asyncio.timeout(60):
        run = await app.start_workflow(f"groups.doubled{style}", numbers, id="w")
        assert await run.result() == [2 * number for number in numbers]
        history = await run.history()
    kinds = [type(event.attributes) for event in history.events]
    assert (kinds.count(GroupStarted), kinds.count(GroupCompleted)) == (1, 1)
    assert len(history.events) < 20
    assert len(next(iter(history.groups.values()))) == 500
    Replayer().replay(history).check()
    saved = WorkflowHistory.from_json(history.to_json())
    assert saved == history
    Replayer().replay(saved).check()
    with pytest.raises(InvalidArgument, match="results of the groups"):
        Replayer().replay(WorkflowHistory("w", history.run_id, history.events))


@pytest.mark.parametrize("style", STYLES)
async def test_errors_are_collected_in_their_places(app: AsyncPerdure, style: str) -> None:
    """STEP-26, with a window."""
    async with app.worker(), asyncio.timeout(60):
        run = await app.start_workflow(f"groups.collected{style}", [1, -2, 3, -4, *range(20)], id="w")
        assert await run.result() == [2, "-2 is negative", 6, "-4 is negative", *(2 * n for n in range(20))]


@pytest.mark.parametrize("style", STYLES)
async def test_the_first_failure_ends_it(app: AsyncPerdure, style: str) -> None:
    """STEP-25, B126."""
    async with app.worker(), asyncio.timeout(60):
        run = await app.start_workflow(f"groups.doubled{style}", [*range(60), -1, *range(60)], id="w")
        with pytest.raises(TaskFailed, match=r"groups\.double\[60\].*-1 is negative"):
            await run.result()
        history = await run.history()
    assert [type(event.attributes) for event in history.events].count(GroupFailed) == 1
    Replayer().replay(history).check()


@pytest.mark.parametrize("style", STYLES)
async def test_nothing_to_do(app: AsyncPerdure, style: str) -> None:
    """STEP-35."""
    async with app.worker(), asyncio.timeout(60):
        for name in ("doubled", "collected"):
            run = await app.start_workflow(f"groups.{name}{style}", [], id=name)
            assert await run.result() == []


async def test_branches_of_all_kinds(app: AsyncPerdure) -> None:
    """Two groups and sixty steps; the places are those of the branches."""
    async with app.worker(), asyncio.timeout(60):
        run = await app.start_workflow(mixed, 60, id="w")
        found = await run.result()
        history = await run.history()
    assert found == [one for n in range(60) for one in (2 * n, n % 7, f"T{n}")]
    assert [type(event.attributes) for event in history.events].count(GroupStarted) == 2


@pytest.mark.parametrize("style", STYLES)
async def test_a_worker_that_has_nothing_in_memory(app: AsyncPerdure, style: str) -> None:
    """STEP-03: another worker replays a run whose group has completed, for a query and for the next turn."""
    async with asyncio.timeout(60):
        async with app.worker():
            run = await app.start_workflow(f"groups.asked{style}", list(range(100)), id="w")
            while await run.query("total") != 9900:
                await asyncio.sleep(0.01)
        async with app.worker():
            assert await run.query("total") == 9900
        async with app.worker():
            await run.signal("go", 1)
            assert await run.result() == [9900, 1]
            assert await run.query("total") == 9900


async def test_code_that_gives_up(app: AsyncPerdure) -> None:
    """CANC: the time-out of the code cancels the group."""
    async with app.worker(queues=["default"]), asyncio.timeout(60):
        run = await app.start_workflow(given_up, 70, id="w")
        assert await run.result() == "gave up"
        history = await run.history()
    assert [type(event.attributes) for event in history.events].count(GroupCancelRequested) == 1
    Replayer().replay(history).check()


async def test_a_call_that_somebody_else_ends(app: AsyncPerdure) -> None:
    """By its id, as any activity."""
    async with app.worker(), asyncio.timeout(60):
        run = await app.start_workflow(outside, 60, id="w")
        for number in range(60):
            call = app.get_activity_handle(workflow_id="w", activity_id=f"later#1[{number}]")
            while True:
                try:
                    await call.complete(number * 3)
                except (IllegalMove, NotFound):  # no worker has had it yet
                    await asyncio.sleep(0.02)
                else:
                    break
        with pytest.raises(NotFound):
            await app.get_activity_handle(workflow_id="w", activity_id="later#1").complete(1)
        assert await run.result() == [number * 3 for number in range(60)]


async def test_a_run_from_before_groups_goes_on(app: AsyncPerdure, monkeypatch: pytest.MonkeyPatch) -> None:
    """RPLY-01: how its calls began is fixed by its history, on the way there and back."""
    async with asyncio.timeout(60):
        for fan_out, then in ((10_000, 50), (50, 10_000)):
            monkeypatch.setattr(groups, "GROUP_FROM", fan_out)
            async with app.worker():
                run = await app.start_workflow(large, 60, id=f"w{fan_out}")
                kind = GroupCompleted if fan_out == 50 else ActivityTaskCompleted
                while not any(isinstance(it.attributes, kind) for it in (await run.history()).events):
                    await asyncio.sleep(0.01)
            monkeypatch.setattr(groups, "GROUP_FROM", then)
            async with app.worker():
                await run.signal("go")
                assert await run.result() == 60 * 59
            Replayer().replay(await run.history()).check()


async def test_what_a_group_waits_for_is_said(app: AsyncPerdure) -> None:
    async with app.worker(queues=["default"]), asyncio.timeout(60):
        run = await app.start_workflow(forever, 70, id="w")
        while "group" not in (await run.describe()).waiting_for:
            await asyncio.sleep(0.01)
        view = await run.describe()
        assert view.waiting_for == "group 'never#1' (0 of 70 calls have ended)"
        [pending] = view.pending_groups
        assert (pending.group_id, pending.type, pending.count, pending.ended) == ("never#1", "groups.nobody", 70, 0)
        await run.terminate()


@workflow(name="groups.forever")
def forever(ctx: Any, count: int) -> None:
    ctx.parallel("never", [(nobody, n) for n in range(count)])


@pytest.mark.parametrize(
    ("branches", "options", "field"),
    [
        ([(double, 1)], {"window": 0}, "window"),
        ([(double, 1)], {"window": True}, "window"),
        ([(double, 1)], {"window": 100_001}, "window"),
        ([(double, 1), (other, "x")], {"window": 2}, "window"),
        ([(double, 1), (length, "x")], {"window": 2}, "window"),
        ([(double, 1)], {"policy": "hope"}, "policy"),
        ([(double, 1, 2)] * 60, {}, "branches"),
        ([()], {}, "branches"),
    ],
)
def test_bad_arguments(branches: list[Any], options: dict[str, Any], field: str) -> None:
    arguments = {"policy": "collect", "retries": None, "timeout": None, "window": None} | options
    with pytest.raises(InvalidArgument) as caught:
        groups.parallel(None, "g", branches, **arguments)  # type: ignore[arg-type]
    assert caught.value.field == field
