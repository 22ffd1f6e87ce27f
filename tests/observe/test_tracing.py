"""Spans from the enqueue to attempts, steps and activities, kept in memory by OpenTelemetry's own SDK (7.4)."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from perdure.api.server import Server
from perdure.app import AsyncPerdure
from perdure.core.errors import TaskFailed
from perdure.core.messages import NewTask
from perdure.sdk.middleware import Middleware
from perdure.sdk.task import task
from perdure.sdk.tracing import Tracing
from perdure.sdk.workflow import workflow

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What was made, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def names(self) -> list[str]:
        return [span.name for span in self.all()]

    def one(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all() if span.name == name]
        return found

    def parent(self, name: str) -> str:
        """Whose child the one of this name is; a span of another trace is nobody's."""
        span = self.one(name)
        by_id = {one.context.span_id: one for one in self.all() if one.context is not None}
        if span.parent is None or span.parent.span_id not in by_id:
            return ""
        found = by_id[span.parent.span_id]
        assert found.context is not None and span.context is not None
        assert found.context.trace_id == span.context.trace_id
        return found.name


@pytest.fixture
def spans() -> Spans:
    return Spans()


@asynccontextmanager
async def app_of(server: Server, spans: Spans, *more: Middleware) -> AsyncIterator[AsyncPerdure]:
    middleware = [Tracing(spans.provider), *more]
    async with AsyncPerdure(server.url, middleware=middleware) as app, asyncio.timeout(60):
        yield app


@task(name="traced_inner")
async def inner(ctx: Any, payload: None) -> str:
    return "inner"


@task(name="traced_plain", retries=0)
def plain(ctx: Any, payload: str) -> str:
    if payload == "fail":
        raise ValueError("no")
    return payload


def step(number: int) -> int:
    return number + 1


async def async_step(number: int) -> int:
    return number + 1


@workflow(name="traced_flow")
async def flow(ctx: Any, payload: None) -> int:
    one = await ctx.step("first", step, 0)
    two = await ctx.step("second", async_step, one)
    await ctx.execute_activity(plain, "activity")
    await ctx.sleep(0.02)
    await ctx.execute_child(child, None)
    return int(two)


@workflow(name="traced_child")
def child(ctx: Any, payload: None) -> str:
    return str(ctx.step("in the child", step, 1))


async def test_an_attempt_is_the_child_of_its_enqueue(server: Server, spans: Spans) -> None:
    async with app_of(server, spans) as app, app.worker(tasks=[plain]):
        with spans.provider.get_tracer("app").start_as_current_span("request"):
            job = await app.enqueue(plain, "you")
        await job.result()
    assert spans.parent("enqueue traced_plain") == "request"
    assert spans.parent("run traced_plain") == "enqueue traced_plain"
    attempt = spans.one("run traced_plain")
    assert attempt.kind is SpanKind.CONSUMER
    assert attempt.attributes == {
        "perdure.task_id": job.id, "perdure.task_type": "traced_plain", "perdure.queue": "default",
        "perdure.attempt": 1,
    }  # fmt: skip


async def test_a_failure_is_told_with_its_exception(server: Server, spans: Spans) -> None:
    async with app_of(server, spans) as app, app.worker(tasks=[plain]):
        with pytest.raises(TaskFailed):
            await app.execute(plain, "fail")
    attempt = spans.one("run traced_plain")
    assert not attempt.status.is_ok
    assert attempt.status.description == "ValueError: no"
    assert [event.name for event in attempt.events] == ["exception"]


async def test_what_a_handler_enqueues_belongs_to_its_attempt(server: Server, spans: Spans) -> None:
    async with app_of(server, spans) as app:

        @task(name="traced_outer")
        async def outer(ctx: Any, payload: None) -> str:
            return str(await app.execute(inner, None))

        async with app.worker(tasks=[outer, inner]):
            assert await app.execute(outer, None) == "inner"
    assert spans.parent("enqueue traced_inner") == "run traced_outer"
    assert spans.parent("run traced_inner") == "enqueue traced_inner"


async def test_a_workflow_is_one_trace_and_replay_adds_nothing(server: Server, spans: Spans) -> None:
    """Its steps, activities and children are children of its start; a worker that goes through the history again makes
    no span."""
    async with app_of(server, spans) as app:
        options: dict[str, Any] = {"tasks": [plain], "workflows": [flow, child]}
        handle = await app.start_workflow(flow, id="traced")
        async with app.worker(**options):
            assert await handle.result() == 2
        made = spans.names()
        app.replayer().replay(await handle.history())
        assert spans.names() == made
    assert sorted(made) == sorted(
        ["enqueue traced_flow", "step first", "step second", "run traced_plain", "step in the child"]
    )
    for name in set(made) - {"enqueue traced_flow"}:
        assert spans.parent(name) == "enqueue traced_flow", name


async def test_a_trace_begins_with_whoever_called(server: Server, spans: Spans) -> None:
    """A client of the REST interface sends its context as HTTP says, and need not know of Perdure's headers."""
    async with app_of(server, spans) as app, app.worker(tasks=[plain]), aiohttp.ClientSession() as session:
        body = {"task_type": "traced_plain", "payload": "rest"}
        async with session.post(f"{server.url}/v1/tasks", json=body, headers={"traceparent": TRACEPARENT}) as response:
            made = await response.json()
        await app.job(made["id"]).result()
    attempt = spans.one("run traced_plain")
    assert attempt.context is not None
    assert f"{attempt.context.trace_id:032x}" == TRACEPARENT.split("-")[1]


async def test_a_repeat_with_a_key_may_be_of_another_trace(server: Server, spans: Spans) -> None:
    """IDEM-15: the trace is no part of what makes two requests the same."""
    async with app_of(server, spans) as app:
        first = await app.enqueue(plain, "x", idempotency_key="k")
        again = await app.enqueue(plain, "x", idempotency_key="k")
    assert first.id == again.id
    assert len(spans.names()) == 2


async def test_many_of_one_call_have_one_enqueue(server: Server, spans: Spans) -> None:
    async with app_of(server, spans) as app, app.worker(tasks=[plain]):
        jobs = await app.enqueue_many(plain, ["a", "b", "c"])
        for job in jobs:
            await job.result()
    assert spans.names().count("enqueue traced_plain") == 1
    assert spans.names().count("run traced_plain") == 3


async def test_middleware_may_refuse_an_enqueue(server: Server) -> None:
    class Refusing(Middleware):
        def before_enqueue(self, name: str, headers: dict[str, str]) -> None:
            raise PermissionError(name)

    async with AsyncPerdure(server.url, middleware=[Refusing()]) as app:
        with pytest.raises(PermissionError):
            await app.enqueue(plain, "x")
        assert (await app.find()).tasks == []


def test_it_can_be_sent_to_the_processes_of_handlers() -> None:
    assert isinstance(pickle.loads(pickle.dumps(Tracing())), Tracing)


def test_without_a_span_nothing_ends(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Tracing().after(None, None)  # type: ignore[arg-type]
        Tracing().error(None, ValueError())  # type: ignore[arg-type]
    assert NewTask("t").headers == {}
    assert not caplog.records
