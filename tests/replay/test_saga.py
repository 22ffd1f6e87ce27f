"""Sagas: the order, the failures, the pivot, and a cancel in the middle."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.compensations import ATTRIBUTE, FAILED, NOTHING, PENDING
from perdure.sdk.converter import from_payloads
from perdure.sdk.saga import PivotPassedError, Saga
from perdure.sdk.task import task
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import StepError
from tests.replay.server import NO, Server


def book(what: str) -> str: ...  # type: ignore[empty-body]


def unbook(what: str) -> None: ...


@task
def refund(ctx: object, card: str) -> None: ...


@workflow
async def trip(ctx: WorkflowContext) -> Any:
    saga = ctx.saga()
    try:
        for what in ("flight", "hotel"):
            saga.add_compensation(unbook, what)
            await ctx.step(f"book {what}", book, what)
        saga.add_compensation(refund, "visa")
        await ctx.step("pay", book, "visa")
    except (StepError, asyncio.CancelledError):
        outcome = await saga.compensate()
        return [msgspec.to_builtins(outcome), outcome.requires_manual_intervention]


def result(server: Server) -> Any:
    assert isinstance(server.closed, c.CompleteWorkflow), server.closed
    server.cold()
    return from_payloads(server.closed.result, "result")


def test_SAGA_01_compensations_run_in_reverse_order_of_what_was_added() -> None:
    server = Server(trip).turn().step(1, "F").step(2, "H").step(3, failure=NO)
    assert isinstance(server.open[server.find(c.ScheduleActivity)], c.ScheduleActivity)
    server.complete().turn()
    assert [step.name for step in server.running.values()] == ["unbook"]
    assert server.instance is not None
    retry = server.instance.step(4).retry
    assert (retry.max_attempts, retry.delays) == (3, (2.0,))
    server.step(4).step(5)
    done, manual = result(server)
    assert [record["arguments"] for record in done["compensations_succeeded"]] == [["visa"], ["hotel"], ["flight"]]
    assert not manual


def test_SAGA_02_a_failed_compensation_is_recorded_and_the_others_go_on() -> None:
    server = Server(trip).turn().step(1, "F").step(2, failure=NO)
    server.step(3, failure=NO).step(4)
    outcome, manual = result(server)
    assert outcome["compensations_failed"] == [
        {"name": "unbook", "arguments": ["hotel"], "error": "ValueError: no", "attempts": 3}
    ]
    assert [record["arguments"] for record in outcome["compensations_succeeded"]] == [["flight"]]
    assert manual


def test_SAGA_11_SAGA_15_a_cancel_compensates_and_another_one_does_not_tear_it() -> None:
    server = Server(trip).turn().step(1, "F")
    server.cancel().turn()
    assert [step.name for step in server.running.values()] == ["book hotel", "unbook"]
    server.step(2, "H").cancel().step(3).step(4)
    outcome, _ = result(server)
    assert [record["arguments"] for record in outcome["compensations_succeeded"]] == [["hotel"], ["flight"]]


def test_SAGA_05_a_later_pass_repeats_only_what_failed() -> None:
    @workflow
    async def flow(ctx: WorkflowContext) -> Any:
        saga = ctx.saga()
        saga.add_compensation(unbook, "a")
        saga.add_compensation(unbook, "b")
        passes = 0
        while (await saga.compensate()).requires_manual_intervention:
            passes += 1
            await ctx.sleep(hours=1)
        return passes

    server = Server(flow).turn().step(1, failure=NO).step(2).fire().turn()
    assert server.instance is not None and server.instance.step(3).args == ("b",)
    assert result(server.step(3)) == 1


def test_SAGA_08_nothing_is_compensated_past_the_pivot() -> None:
    @workflow
    async def flow(ctx: WorkflowContext) -> Any:
        saga = ctx.saga()
        saga.add_compensation(unbook, "a")
        saga.pivot()
        try:
            await saga.compensate()
        except PivotPassedError as error:
            return str(error)

    assert "past its pivot" in result(Server(flow).turn())


def said(server: Server) -> list[Any]:
    """What the run said that it owes, in order."""
    events = [event.attributes for event in server.history.events]
    upserts = [found for found in events if isinstance(found, e.UpsertWorkflowSearchAttributes)]
    return [found.search_attributes[ATTRIBUTE] for found in upserts]


def test_SAGA_04_a_run_says_what_it_owes_once_each_time_that_it_changes() -> None:
    server = Server(trip).turn().step(1, "F").step(2, failure=NO)
    assert said(server) == [PENDING]
    server.step(3, failure=NO).step(4)
    assert said(server) == [PENDING, FAILED]
    server = Server(trip).turn().step(1, "F").step(2, failure=NO).step(3).step(4)
    assert said(server) == [PENDING, NOTHING]
    assert result(server)[1] is False


def test_SAGA_04_of_several_sagas_the_worst_counts() -> None:
    @workflow
    async def two(ctx: WorkflowContext) -> None:
        first, second = ctx.saga(), ctx.saga()
        first.add_compensation(unbook, "a")
        second.add_compensation(unbook, "b")
        await first.compensate()
        second.pivot()
        second.add_compensation(unbook, "after the pivot")
        await first.compensate()

    server = Server(two).turn().step(1, failure=NO)
    assert said(server) == [PENDING, FAILED]
    server.step(2)
    assert said(server) == [PENDING, FAILED, NOTHING]


def test_a_history_from_before_sagas_said_what_they_owe_is_replayed() -> None:
    """What such a run says later on is in its history from there on."""
    server = Server(trip)
    before = Saga._owe
    Saga._owe = lambda self, what: None  # type: ignore[method-assign]
    try:
        server.turn().step(1, "F")
    finally:
        Saga._owe = before  # type: ignore[method-assign]
    assert said(server) == []
    server.lose().turn()
    assert said(server) == []
    server.step(2, failure=NO)
    server.lose().turn().step(3, failure=NO).step(4)
    assert said(server) == [FAILED]
    assert result(server)[1] is True
