"""The client's calls about workflows: over a real engine with a real worker in this process, and over a Service whose
answers get lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    Context,
    InvalidArgument,
    NotFound,
    NoWorker,
    Perdure,
    QueryFailed,
    TaskCanceled,
    TaskFailed,
    TaskTerminated,
    UpdateFailed,
    WaitTimeout,
    WorkflowAlreadyStarted,
    WorkflowClosed,
    task,
)
from perdure.client.calls import Calls
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.errors import OutcomeUnknown
from perdure.core.model import RetryPolicy
from perdure.sdk.client import AsyncClient
from perdure.sdk.history import WorkflowHistory
from perdure.sdk.workflow import workflow


@dataclass
class Order:
    number: int


@workflow(queue="carts", run_timeout="1h")
class ClientCart:
    """Waits for "go", and meanwhile does what it is told."""

    def __init__(self) -> None:
        self.items: list[str] = []

    async def run(self, ctx: Any, order: Order) -> Order:
        await ctx.wait_for_signal("go", timeout="1h")
        return Order(order.number + len(self.items))

    @workflow.signal
    def add(self, item: str) -> None:
        self.items.append(item)

    @workflow.query
    def content(self) -> list[str]:
        return self.items

    @workflow.update
    async def put(self, item: str) -> int:
        self.items.append(item)
        return len(self.items)

    @put.validator
    def is_good(self, item: str) -> None:
        if item == "bad":
            raise ValueError("nobody wants it")


@workflow(queue="carts")
async def client_fails(ctx: Any, payload: Any) -> None:
    raise ValueError("no stock")


@workflow(queue="carts")
async def client_counts(ctx: Any, n: int) -> int:
    if n < 3:
        ctx.continue_as_new(n + 1)
    return n


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker(queues=["carts"]):
        yield app


async def test_a_handle_does_it_all(app: AsyncPerdure) -> None:
    """SDK-04: in the types that the workflow is annotated with."""
    cart = await app.start_workflow(ClientCart, Order(7), id="cart-1", memo={"for": "ann"})  # type: ignore[arg-type]
    assert (cart.id, cart.started, repr(cart)) == ("cart-1", True, "<workflow cart-1>")
    await cart.signal("add", "apple")
    assert await cart.update("put", "pear") == 2
    assert await cart.query("content") == ["apple", "pear"]
    view = await cart.describe()
    assert (view.queue, view.status, view.run_deadline is not None) == ("carts", "RUNNING", True)
    with pytest.raises(WaitTimeout):
        await cart.result(0)
    update = await cart.start_update("put", "plum", id="third", timeout=10)
    assert (update.id, await update.result(10)) == ("third", 3)
    assert await cart.update("put", "plum", id="third") == 3, "the same update"
    await cart.signal("go")
    assert await cart.result(10) == Order(10)
    assert await app.get_workflow_handle("cart-1").result(10) == {"number": 10}
    assert await app.get_workflow_handle("cart-1", workflow=ClientCart).result(10) == Order(10)  # type: ignore[arg-type]
    assert await cart.query("content") == ["apple", "pear", "plum"], "of a closed run"
    found = await app.list_workflows(type="ClientCart", status="COMPLETED")
    assert [run.workflow_id for run in found.workflows] == ["cart-1"]


async def test_what_code_refuses_is_told_by_kind(app: AsyncPerdure) -> None:
    """SIG-12, SIG-14, B096."""
    cart = await app.start_workflow("ClientCart", {"number": 1}, id="cart-2")
    with pytest.raises(UpdateFailed, match="nobody wants it") as rejected:
        await cart.update("put", "bad")
    assert rejected.value.failure.code == "update_rejected"
    with pytest.raises(UpdateFailed):
        await cart.start_update("put", "bad")
    with pytest.raises(QueryFailed, match="odd"):
        await cart.query("odd")
    await cart.signal("go")
    await cart.result(10)
    for call in (cart.signal("add", "x"), cart.update("put", "x")):
        with pytest.raises(WorkflowClosed):
            await call
    for call in (app.get_workflow_handle("odd").result(0), app.get_workflow_handle("odd").history()):
        with pytest.raises(NotFound):
            await call
    nobody = await app.start_workflow("somewhere_else", id="cart-3", queue="nobody")
    with pytest.raises(NoWorker, match="'nobody'"):
        await nobody.query("content", timeout=0.1)


async def test_results_are_raised_as_they_are(app: AsyncPerdure) -> None:
    """Failed, canceled, terminated: three reactions (B102)."""
    with pytest.raises(TaskFailed, match="ValueError: no stock") as failed:
        await app.execute_workflow(client_fails, timeout=10)
    assert failed.value.failure.type == "ValueError"
    for name, error in (("cancel", TaskCanceled), ("terminate", TaskTerminated)):
        cart = await app.start_workflow("ClientCart", {"number": 1}, id=name)
        await cart.update("put", "x")
        await getattr(cart, name)("enough")
        with pytest.raises(error):
            await cart.result(10)
    timed = await app.start_workflow("ClientCart", {"number": 1}, id="timed", run_timeout=0.1)
    with pytest.raises(TaskFailed) as timed_out:
        await timed.result(10)
    assert timed_out.value.failure.code == "workflow_timeout"


async def test_the_short_ways(app: AsyncPerdure) -> None:
    """execute, signal-with-start (SIG-06), update-with-start; a chain is followed (RPLY-23)."""
    assert await app.execute_workflow(client_counts, 1, timeout=10) == 3
    carts = await asyncio.gather(
        *(
            app.signal_with_start("ClientCart", {"number": 0}, id="one", signal="add", signal_input=str(n))
            for n in range(20)
        )
    )
    assert len({cart.run_id for cart in carts}) == 1 and sum(cart.started for cart in carts) == 1
    assert sorted(await carts[0].query("content")) == sorted(map(str, range(20)))
    options: Any = {"id": "two", "update": "put", "timeout": 10}
    assert await app.update_with_start("ClientCart", {"number": 0}, update_input="a", **options) == 1
    assert await app.update_with_start("ClientCart", {"number": 0}, update_input="b", **options) == 2
    await app.get_workflow_handle("two").signal("go")
    await app.get_workflow_handle("two").result(10)
    assert await app.update_with_start("ClientCart", {"number": 0}, update_input="c", **options) == 1, "a new run"
    with pytest.raises(WorkflowAlreadyStarted):
        await app.start_workflow("ClientCart", {"number": 0}, id="two")


async def test_a_history_is_read_whole_and_kept(app: AsyncPerdure) -> None:
    """API-24, RPLY-38: what a file has is what the server has."""
    cart = await app.start_workflow("ClientCart", {"number": 1}, id="kept")
    for n in range(30):
        await cart.update("put", str(n))
    history = await cart.history()
    assert [event.id for event in history.events] == list(range(1, len(history.events) + 1))
    assert (history.workflow_id, history.run_id) == ("kept", cart.run_id)
    assert WorkflowHistory.from_json(history.to_json()) == history
    for bad in (b"{", b"[]", b'{"events": []}', b'{"workflow_id": "a", "run_id": "b", "events": 3}'):
        with pytest.raises(InvalidArgument):
            WorkflowHistory.from_json(bad)


@task
async def client_approval(ctx: Context, payload: Any) -> None:
    """Waits for somebody else to end it."""
    while not ctx.cancelled():
        await asyncio.sleep(0.01)


@workflow(queue="carts")
async def client_approved(ctx: Any, payload: Any) -> Any:
    return await ctx.execute_activity("client_approval", payload, activity_id="approval", queue="carts")


async def test_an_activity_is_ended_by_somebody_else(app: AsyncPerdure) -> None:
    """By its ids; the error names what is not there."""
    run = await app.start_workflow("client_approved", id="approve")
    async with asyncio.timeout(10):
        while not any(a.state == "LEASED" for a in (await run.describe()).pending_activities):
            await asyncio.sleep(0.01)
    with pytest.raises(NotFound):
        await app.get_activity_handle(workflow_id="approve", activity_id="odd").complete(1)
    [activity] = (await run.describe()).pending_activities
    await app.get_activity_handle(workflow_id="approve", activity_id=activity.activity_id).complete({"by": "bob"})
    assert await run.result(10) == {"by": "bob"}
    for wrong in ({}, {"workflow_id": "a"}, {"token": b"x", "workflow_id": "a", "activity_id": "b"}):
        with pytest.raises(TypeError):
            app.get_activity_handle(**wrong)


@pytest.fixture
def blocking(tmp_path: Path) -> Iterator[Perdure]:
    with Perdure(f"sqlite:///{tmp_path}/jobs.db") as app, app.worker(queues=["carts"]):
        yield app


def test_all_calls_block_without_an_event_loop(blocking: Perdure) -> None:
    app = blocking
    cart = app.start_workflow(ClientCart, Order(1), id="cart")  # type: ignore[arg-type]
    cart.signal("add", "apple")
    assert cart.update("put", "pear") == 2
    assert cart.start_update("put", "plum").result(10) == 3
    assert cart.query("content") == ["apple", "pear", "plum"]
    assert (cart.started, cart.describe().run_id, cart.history().run_id) == (True, cart.run_id, cart.run_id)
    app.signal_with_start("ClientCart", {"number": 1}, id="cart", signal="go")
    assert app.get_workflow_handle("cart", workflow=ClientCart).result(10) == Order(4)  # type: ignore[arg-type]
    assert app.update_with_start("ClientCart", {"number": 1}, id="other", update="put", update_input="x") == 1
    other = app.get_workflow_handle("other")
    assert repr(other) == "<workflow other>" and other.id == "other"
    other.cancel("enough")
    with pytest.raises(TaskCanceled):
        other.result(10)
    assert app.start_workflow("ClientCart", {"number": 1}, id="third").terminate("x").state == "TERMINATED"
    assert {run.workflow_id for run in app.list_workflows().workflows} == {"cart", "other", "third"}
    assert app.execute_workflow(client_counts, 3) == 3
    with pytest.raises(NotFound):
        app.get_activity_handle(workflow_id="third", activity_id="x").complete()


# ----------------------------------------------------------------------------------------------------------- outages
class Losing(Calls):
    """Loses the first answers to each operation; keeps what it was asked."""

    def __init__(self, lost: int) -> None:
        self.asked: list[m.Body] = []
        self._lost = lost

    async def _ask(self, op: str, body: m.Body) -> Any:
        self.asked.append(body)
        if len(self.asked) <= self._lost:
            raise OutcomeUnknown("the answer was lost", retry_after=0.001)
        if isinstance(body, w.StartWorkflow):
            return w.StartReply(body.workflow_id, "run")
        return w.RunReply("w", "run")

    async def close(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("name", ["start", "signal", "cancel"])
async def test_a_repeated_call_is_the_same_call(name: str) -> None:
    """IDEM-05, SIG-03: the request id stays over an outage, so that it makes no second run and no second signal."""
    service = Losing(3)
    client = AsyncClient(service)
    handle = client.get_workflow_handle("w")
    match name:
        case "start":
            await client.start_workflow("fulfil")
        case "signal":
            await handle.signal("go", {"a": 1})
        case _:
            await handle.cancel("enough")
    ids = {body.request_id for body in service.asked}  # type: ignore[attr-defined]
    assert (len(service.asked), len(ids)) == (4, 1) and ids != {""}


async def test_options_go_to_the_server() -> None:
    """And those of the decorator count where the call says nothing; unknown ones are an error at once."""
    service = Losing(0)
    client = AsyncClient(service, identity="me")
    policy = RetryPolicy(max_attempts=3)
    await client.start_workflow(
        "elsewhere", queue="q", start_delay="1h", execution_timeout=5, retry=policy, cron="@daily", priority=1,
        fairness_key="f", headers={"a": "b"}, search_attributes={"x": 1}, id_reuse="reject_duplicate",
        id_conflict="use_existing",
    )  # fmt: skip
    await client.start_workflow(ClientCart, Order(1), id="c", queue=None)  # type: ignore[arg-type]
    first, second = service.asked
    assert isinstance(first, w.StartWorkflow) and isinstance(second, w.StartWorkflow)
    assert (first.queue, first.start_delay, first.execution_timeout, first.retry) == ("q", "1h", 5, policy)
    assert (first.cron, first.priority, first.fairness_key, first.headers) == ("@daily", 1, "f", {"a": "b"})
    assert (first.id_reuse, first.id_conflict, first.identity) == ("reject_duplicate", "use_existing", "me")
    assert first.workflow_id and first.workflow_id != first.request_id
    assert (second.queue, second.run_timeout, second.workflow_id) == ("carts", 3600.0, "c")
    with pytest.raises(TypeError, match="no option timeouts"):
        await client.start_workflow("elsewhere", timeouts=3)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument):
        await client.start_workflow(print)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="input"):
        await client.start_workflow("elsewhere", {1, 2})
