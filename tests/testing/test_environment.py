"""Application tests on a jumping clock: what people expect of an eager mode, and where those of others mislead them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from perdure import (
    AsyncPerdure,
    Context,
    DataConverter,
    FatalError,
    InvalidArgument,
    Middleware,
    Perdure,
    RetryPolicy,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    task,
)
from perdure.core.messages import TimeoutOptions
from perdure.testing import jumping

FLAKY = RetryPolicy(max_attempts=3, base=600.0)
START = datetime(2027, 3, 1, 12, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------------ time
def test_delays_are_jumped_over() -> None:
    """TIMER, SDK-14: a month passes at once, and the clock shows it."""

    @task
    def remind(ctx: Context, payload: str) -> str:
        return f"remember {payload}"

    began = time.monotonic()
    with jumping(start=START) as env:
        job = env.app.enqueue(remind, "milk", delay="30d")
        env.run("29d")
        assert job.status().state == "ENQUEUED"
        assert env.now == START + timedelta(days=29)
        env.run()
        assert job.result() == "remember milk"
        assert env.now == START + timedelta(days=30)
    assert time.monotonic() - began < 5


def test_run_for_zero_runs_what_is_due_now() -> None:
    ran: list[int] = []

    @task
    def note(ctx: Context, payload: int) -> None:
        ran.append(payload)

    with jumping(start=START) as env:
        env.app.enqueue(note, 2, delay=1)
        env.app.enqueue(note, 1)
        env.run(0)
        assert ran == [1]
        assert env.now == START


def test_back_off_is_jumped_over_and_attempts_count_as_in_production() -> None:
    """RETRY-01: not one call, as in an eager mode that knows no retries."""
    attempts: list[int] = []

    @task(retries=FLAKY)
    def flaky(ctx: Context, payload: None) -> str:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return "done"

    with jumping(start=START) as env:
        job = env.app.enqueue(flaky)
        env.run(0)
        assert attempts == [1]
        assert env.enqueued(flaky)[0].attempt == 1
        env.run()
        assert job.result() == "done"
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_hanging_handler_runs_out_of_its_time(kind: str) -> None:
    """TMO-01: an hour of start-to-close passes in a moment, and the handler is told to stop."""
    stopped = threading.Event()

    async def sleep(ctx: Context, payload: None) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            stopped.set()

    def loop(ctx: Context, payload: None) -> None:
        while not ctx.cancelled():
            time.sleep(0.001)
        stopped.set()

    hang: Any = task(timeout="1h", retries=0)(sleep if kind == "async" else loop)
    with jumping(start=START, patience=0.1) as env:
        job = env.app.enqueue(hang)
        with pytest.raises(TaskFailed) as failed:
            job.result()
        assert failed.value.failure.code == "start_to_close_timeout"
        assert env.now == START + timedelta(hours=1)
        assert stopped.wait(5)


def test_a_handler_that_takes_longer_than_a_lease_keeps_it() -> None:
    """LEASE-10: the clock jumps past its lease while it runs, as it does when another job is due meanwhile."""
    times: list[int] = []

    @task
    async def at_once(ctx: Context, payload: None) -> None:
        times.append(2)

    @task(timeout="2h", retries=0)
    async def slower_than_a_lease(ctx: Context, payload: None) -> int:
        times.append(1)
        while len(times) < 2:
            await asyncio.sleep(0.001)
        return ctx.attempt

    with jumping(slots=2, patience=0.1) as env:
        job = env.app.enqueue(slower_than_a_lease)
        env.app.enqueue(at_once, delay="1h")
        env.run()
        assert job.result() == 1


def test_a_handler_without_a_limit_that_hangs_is_an_error() -> None:
    @task
    async def hang(ctx: Context, payload: None) -> None:
        await asyncio.Event().wait()

    with jumping(patience=0.1) as env:
        env.app.enqueue(hang)
        with pytest.raises(TimeoutError, match=r"hang still runs after 0\.1 s, and nothing else is going to happen"):
            env.run()


def test_all_attempts_together_have_a_limit() -> None:
    """TMO-04."""

    @task(retries=RetryPolicy(max_attempts=100, base=60.0, cap=60.0))
    def never(ctx: Context, payload: None) -> None:
        raise ConnectionError("no")

    with jumping(start=START) as env:
        job = env.app.enqueue(never, timeouts=TimeoutOptions(schedule_to_close="10m"))
        env.run(check=False)
        failure = job.status().failure
        assert failure is not None
        assert failure.code == "schedule_to_close_timeout"
        assert env.now <= START + timedelta(minutes=10)


# ----------------------------------------------------------------------------------------------------------- order
def test_jobs_run_one_after_the_other_in_the_order_of_the_queue() -> None:
    order: list[str] = []

    @task
    def note(ctx: Context, payload: str) -> None:
        order.append(payload)

    with jumping() as env:
        for name in "bcd":
            env.app.enqueue(note, name)
        env.app.enqueue(note, "a", priority=1)
        env.app.enqueue(note, "e", delay="1h")
        env.app.enqueue(note, "f", delay="2h")
        assert order == []  # nothing runs before the test says so
        env.run()
    assert order == list("abcdef")


def test_what_handlers_enqueue_runs_too_in_queues_that_nobody_declared() -> None:
    order: list[tuple[str, str]] = []

    @task
    def note(ctx: Context, payload: int) -> None:
        order.append((ctx.queue, f"{payload}"))
        if payload:
            env.app.enqueue(note, payload - 1, queue=f"queue-{payload}")

    with jumping() as env:
        env.app.enqueue(note, 3)
        env.run()
        assert order == [("default", "3"), ("queue-3", "2"), ("queue-2", "1"), ("queue-1", "0")]
        assert env.enqueued() == []


def test_more_queues_than_one_poll_takes() -> None:
    ran: list[int] = []

    @task
    def note(ctx: Context, payload: int) -> None:
        ran.append(payload)

    with jumping() as env:
        for number in range(120):
            env.app.enqueue(note, number, queue=f"q{number}")
        env.run()
    assert sorted(ran) == list(range(120))


def test_a_handler_may_wait_for_another_job() -> None:
    """With one slot too: the one that waits lends it. Eager modes that call the handler inside enqueue hide this."""

    @task
    def child(ctx: Context, payload: int) -> int:
        return payload * 2

    @task
    def parent(ctx: Context, payload: int) -> int:
        jobs = [env.app.enqueue(child, number, delay="1h") for number in range(payload)]
        return sum(job.result() for job in jobs)

    with jumping(start=START) as env:
        assert env.app.enqueue(parent, 3).result() == 6
        assert env.now == START + timedelta(hours=1)


def test_execute_runs_the_job() -> None:
    """Enqueue and wait in one request, inside a handler too."""

    @task
    def child(ctx: Context, payload: int) -> int:
        return payload * 2

    @task
    def parent(ctx: Context, payload: int) -> int:
        return int(env.app.execute(child, payload)) + 1

    with jumping() as env:
        assert env.app.execute(parent, 4, delay="1h") == 9


def test_plain_handlers_run_in_the_thread_of_the_test() -> None:
    """So they see its uncommitted database connection; an eager mode does that too, a real worker cannot."""

    @task
    def where(ctx: Context, payload: None) -> int:
        return threading.get_ident()

    with jumping() as env:
        assert env.app.enqueue(where).result() == threading.get_ident()
    with jumping(slots=2) as env:
        assert env.app.enqueue(where).result() != threading.get_ident()


def test_other_threads_may_enqueue_and_wait() -> None:
    """As the server of an application under test does."""

    @task
    def double(ctx: Context, payload: int) -> int:
        return payload * 2

    results: list[int] = []
    with jumping() as env:
        threads = [
            threading.Thread(target=lambda n=n: results.append(env.app.enqueue(double, n).result())) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(results) == [0, 2, 4, 6]


# --------------------------------------------------------------------------------------------------------- payloads
def test_payloads_are_really_encoded_and_decoded() -> None:
    """B135: an eager mode that passes objects by reference lets a test pass that fails in production."""
    given = {"tags": ["a"]}

    @task
    def change(ctx: Context, payload: dict[str, list[str]]) -> bool:
        payload["tags"].append("b")
        return payload is given

    with jumping() as env:
        assert env.app.enqueue(change, given).result() is False
        assert given == {"tags": ["a"]}
        with pytest.raises(InvalidArgument):
            env.app.enqueue(change, {"lock": threading.Lock()})
        env.app.enqueue(change, given)
        given["tags"].append("later")
        assert env.enqueued(change)[0].payload == {"tags": ["a"]}


def test_a_result_that_cannot_be_encoded_fails_here_too() -> None:
    """B135, TASK-10."""

    @task
    def bad(ctx: Context, payload: None) -> object:
        return threading.Lock()

    with jumping() as env:
        with pytest.raises(TaskFailed) as failed:
            env.app.enqueue(bad).result()
        assert failed.value.failure.code == "unencodable_result"


# --------------------------------------------------------------------------------------------------------- failures
def test_a_failure_that_nobody_looks_at_fails_the_test() -> None:
    """B134: the error is raised where the test runs the jobs, with the handler's own stack, once."""

    @task(retries=0)
    def bad(ctx: Context, payload: None) -> None:
        raise LookupError("no such user")

    with jumping() as env:
        env.app.enqueue(bad)
        with pytest.raises(TaskFailed, match="LookupError: no such user") as failed:
            env.run()
        assert "in bad" in "".join(failed.value.__notes__)
        assert [view.type for view in env.failures()] == ["bad"]
        env.run()  # once is enough
        env.app.enqueue(bad)
        env.run(check=False)
        assert len(env.failures()) == 2


def test_fatal_errors_end_at_once() -> None:
    @task
    def bad(ctx: Context, payload: None) -> None:
        raise FatalError("never")

    with jumping() as env:
        job = env.app.enqueue(bad)
        env.run(check=False)
        assert job.status().attempt == 1


def test_late_work_expires_which_is_an_error_of_the_run() -> None:
    """TMO-01: schedule-to-start passes while another job holds the only slot."""

    @task(schedule_to_start="1m")
    def greet(ctx: Context, payload: None) -> None: ...

    @task(timeout="2m", retries=0)
    async def block(ctx: Context, payload: None) -> None:
        await asyncio.sleep(1e6)

    with jumping(patience=0.1) as env:
        job = env.app.enqueue(greet)
        env.app.enqueue(block, priority=1)
        with pytest.raises(TaskExpired) as expired:
            env.run()
        assert "FAILED as well: task block" in expired.value.__notes__[-1]
        with pytest.raises(TaskExpired):
            job.result()


def test_unknown_handlers_fail_at_once() -> None:
    """TASK-18."""
    with jumping() as env:
        env.app.enqueue("nobody.knows", {})
        with pytest.raises(TaskFailed, match=r"no task named 'nobody\.knows'"):
            env.run()


def test_cancel_before_and_while_it_runs() -> None:
    """CANC-01, CANC-02: the handler hears of it with a heartbeat, as in production."""

    @task
    async def wait(ctx: Context, payload: None) -> None:
        await asyncio.Event().wait()

    @task
    async def cancel(ctx: Context, payload: str) -> None:
        await env.async_app.cancel(payload, "enough")

    with jumping(slots=2) as env:
        waiting = env.app.enqueue(wait, delay="1h")
        waiting.cancel()
        running = env.app.enqueue(wait)
        env.app.enqueue(cancel, running.id)
        env.run()
        for job in (waiting, running):
            with pytest.raises(TaskCanceled):
                job.result()


def test_idempotency_keys_work() -> None:
    """IDEM-01."""
    ran: list[int] = []

    @task
    def note(ctx: Context, payload: int) -> None:
        ran.append(payload)

    with jumping() as env:
        first = env.app.enqueue(note, 1, idempotency_key="one")
        second = env.app.enqueue(note, 1, idempotency_key="one")
        assert second.duplicate
        assert first.id == second.id
        env.run()
    assert ran == [1]


# ----------------------------------------------------------------------------------------------------------- scope
def test_an_application_is_redirected_and_given_back(tmp_path: Path) -> None:
    @task
    def double(ctx: Context, payload: int) -> int:
        return payload * 2

    app = Perdure(f"sqlite:///{tmp_path}/real.db")
    other = AsyncPerdure("http://127.0.0.1:9")  # nobody is there
    with jumping(app, other) as env:
        job = app.enqueue(double, 1)
        assert [waiting.id for waiting in env.enqueued()] == [job.id]
        assert job.result() == 2
        assert asyncio.run(other.get(job.id)).state == "SUCCEEDED"
        asyncio.run(other.close())  # by the end of an application's own life; the environment goes on
        assert asyncio.run(other.get(job.id)).state == "SUCCEEDED"
    assert not (tmp_path / "real.db").exists()
    with app, app.worker():
        assert app.enqueue(double, 4).result(timeout=30) == 8
    assert (tmp_path / "real.db").exists()


def test_environments_know_nothing_of_each_other() -> None:
    @task
    def note(ctx: Context, payload: int) -> None: ...

    with jumping() as env:
        env.app.enqueue(note, 1)
    with jumping() as env:
        assert env.enqueued() == []


def test_one_environment_is_one_namespace() -> None:
    apps = Perdure("sqlite:///a.db", namespace="a"), Perdure("sqlite:///a.db", namespace="b")
    with pytest.raises(ValueError, match="one namespace"):
        jumping(*apps)
    with jumping(apps[0]):
        assert apps[0].find().tasks == []


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"), jumping(start=datetime(2027, 1, 1)):
        pass


def test_a_blocking_call_in_an_async_handler_is_an_error() -> None:
    """B121: and not a deadlock."""

    @task(retries=0)
    async def bad(ctx: Context, payload: None) -> None:
        env.app.get(ctx.task_id)

    with jumping() as env:
        env.app.enqueue(bad)
        with pytest.raises(TaskFailed, match="use AsyncPerdure"):
            env.run()


def test_ctrl_c_in_a_handler_stops_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: the test is slow to leave, and the handler, which has attempts left, is not run again meanwhile."""
    tell = asyncio.BaseEventLoop.call_soon_threadsafe

    def tell_and_dawdle(loop: asyncio.BaseEventLoop, *args: Any, **options: Any) -> Any:
        told = tell(loop, *args, **options)
        time.sleep(0.1 if runs else 0)
        return told

    runs: list[int] = []

    @task
    def interrupted(ctx: Context, payload: None) -> None:
        runs.append(ctx.attempt)
        raise KeyboardInterrupt

    with jumping() as env:
        env.app.enqueue(interrupted)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", tell_and_dawdle)
            env.run()
    assert runs == [1]


# ----------------------------------------------------------------------------------------------------------- async
async def test_async_tests_share_their_event_loop_with_async_handlers() -> None:
    loop = asyncio.get_running_loop()

    @task(retries=FLAKY)
    async def flaky(ctx: Context, payload: int) -> int:
        assert asyncio.get_running_loop() is loop
        if ctx.attempt < 3:
            raise ConnectionError("not yet")
        return payload + 1

    app = AsyncPerdure("sqlite:///nowhere.db")
    async with jumping(app, start=START) as env:
        job = await app.enqueue(flaky, 1, delay="1h")
        assert [(waiting.type, waiting.payload, waiting.due) for waiting in await env.enqueued(flaky)] == [
            ("flaky", 1, START + timedelta(hours=1))
        ]
        await env.run()
        assert await job.result() == 2
        assert await env.failures() == []
        assert await (await env.app.enqueue(flaky, 5)).result() == 6
    assert not Path("nowhere.db").exists()


async def test_async_plain_handlers_may_use_the_blocking_client() -> None:
    @task
    def child(ctx: Context, payload: int) -> int:
        return payload * 2

    @task
    def parent(ctx: Context, payload: int) -> int:
        return int(app.enqueue(child, payload).result()) + 1

    app = Perdure("sqlite:///nowhere.db")
    async with jumping(app) as env:
        assert await (await env.app.enqueue(parent, 5)).result() == 11


async def test_async_waiters_together() -> None:
    @task
    async def double(ctx: Context, payload: int) -> int:
        return payload * 2

    async with jumping() as env:
        jobs = [await env.app.enqueue(double, number, delay=number) for number in range(5)]
        assert await asyncio.gather(*(job.result() for job in jobs)) == [0, 2, 4, 6, 8]


class Reversed(DataConverter):
    encoding = "test/reversed"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


class Watch(Middleware):
    seen: ClassVar[list[str]] = []

    def before(self, ctx: Context, payload: Any) -> None:
        self.seen.append(f"before {ctx.type} in {threading.current_thread().name}")


# ---------------------------------------------------------------------------------------------------- extensions
def test_handlers_get_what_the_application_gives_to_its_workers() -> None:
    """Middleware, lifespan and converter are those of production, and types come from the hints."""
    seen = Watch.seen

    @asynccontextmanager
    async def lifespan(app: AsyncPerdure) -> AsyncIterator[dict[str, int]]:
        seen.append("up")
        yield {"answer": 42}
        seen.append("down")

    @task
    def ask(ctx: Context, payload: datetime) -> str:
        return f"{payload:%Y} {ctx.state['answer']}"

    app = Perdure("sqlite:///nowhere.db", middleware=[Watch()], converter=Reversed(), lifespan=lifespan)
    with jumping(app) as env:
        job = app.enqueue(ask, START)
        assert env.enqueued()[0].payload == START
        assert job.result() == "2027 42"
    assert seen == ["up", f"before ask in {threading.current_thread().name}", "down"]
