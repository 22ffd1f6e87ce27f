"""The public client against a model of a few lines: whatever an application and its workers do, in any order, tasks,
states, counts, keys and results are those that the model says. On all three stores, over a real connection; only the
clock of the database is a stepped one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from perdure import Perdure, RetryPolicy
from perdure.api.service import Caller, Service
from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core.errors import (
    FatalError,
    IdempotencyConflict,
    IllegalMove,
    InvalidArgument,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    WaitTimeout,
)
from perdure.core.model import Failure, Payload
from perdure.sdk.task import Task
from tests.clock import SteppedClock
from tests.fuzz.effort import effort
from tests.fuzz.running import Running, running

HOUR = 3600.0
KEY_HOURS = 24.0
OPEN = ("ENQUEUED", "LEASED", "RETRY_WAIT")
_numbers = itertools.count(1)


def good(ctx: Any, payload: Any) -> Any:
    return payload


def bad(ctx: Any, payload: Any) -> Any:
    raise ValueError(payload)


def fatal(ctx: Any, payload: Any) -> Any:
    raise FatalError(str(payload))


TASKS = [Task(good, "good"), Task(bad, "bad"), Task(fatal, "fatal")]


@dataclass
class Model:
    """What is known of a task."""

    id: str
    type: str
    number: int
    priority: int = 3
    most: int = 1  #: attempts
    state: str = "ENQUEUED"
    attempt: int = 0  #: spent
    ready_at: float = 0.0  #: hours
    expires_in: float | None = None
    expires_at: float | None = None
    key: str | None = None
    started: bool = False
    cancel_asked: bool = False
    retry_of: str | None = None
    result: Any = None

    @property
    def closed(self) -> bool:
        return self.state not in OPEN

    def failed(self, *, final: bool = False) -> None:
        """An attempt is over, and nothing came of it."""
        self.attempt += 1
        if self.cancel_asked:
            self.state = "CANCELED"
        else:
            self.state = "FAILED" if final or self.attempt >= self.most else "RETRY_WAIT"


class Machine(RuleBasedStateMachine):
    """One application in a namespace of its own."""

    server: Running
    clock: SteppedClock
    jobs: Bundle[Model] = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"n{next(_numbers)}"
        self.app = Perdure(self.server.url, namespace=self.namespace)
        self.worker = Service(self.server.engine, Caller(self.namespace))
        self.incarnation = 0
        self.polls = 0
        self.models: dict[str, Model] = {}
        self.keys: dict[str, tuple[float, Model]] = {}
        self.again: dict[str, tuple[float, Model]] = {}  #: closed task -> its repeat
        self.held: dict[str, bytes] = {}  #: what a worker of ours has not answered yet
        self.begun = self.clock.now()

    def teardown(self) -> None:
        self.app.close()

    @property
    def now(self) -> float:
        """Hours since the start."""
        return (self.clock.now() - self.begun) / HOUR / 1e6

    def ready(self) -> list[Model]:
        return [one for one in self.models.values() if one.state == "ENQUEUED" and one.ready_at <= self.now]

    def _made(self, job_id: str, **known: Any) -> Model:
        assert job_id not in self.models
        made = self.models[job_id] = Model(job_id, **known)
        if made.expires_in is not None:
            made.expires_at = max(self.now, made.ready_at) + made.expires_in
        return made

    # ----------------------------------------------------------------------------------------------------- application
    @rule(
        target=jobs,
        type_=st.sampled_from(("good", "bad", "fatal")),
        number=st.integers(0, 3),
        priority=st.integers(1, 5),
        delay=st.sampled_from((0.0, 0.0, 0.0, 0.5, 5.0)),
        most=st.integers(1, 3),
        expires_in=st.none() | st.sampled_from((1.0, 7.0)),
    )
    def enqueue(
        self, type_: str, number: int, priority: int, delay: float, most: int, expires_in: float | None
    ) -> Model:
        timeouts = None if expires_in is None else m.TimeoutOptions(schedule_to_start=f"{expires_in:g}h")
        job = self.app.enqueue(
            type_,
            number,
            priority=priority,
            delay=delay * HOUR,
            retry=RetryPolicy(max_attempts=most),
            timeouts=timeouts,
        )
        return self._made(
            job.id,
            type=type_,
            number=number,
            priority=priority,
            most=most,
            ready_at=self.now + delay,
            expires_in=expires_in,
        )

    @rule(target=jobs, key=st.sampled_from(("k1", "k2")), number=st.integers(0, 1))
    def enqueue_with_a_key(self, key: str, number: int) -> Model:
        """IDEM-01: one key, one task, for 24 hours and as long as that is open."""
        reserved = self.keys.get(key)
        taken = reserved is not None and (self.now < reserved[0] or not reserved[1].closed)
        if taken and reserved is not None and reserved[1].number != number:
            with pytest.raises(IdempotencyConflict):
                self.app.enqueue("good", number, idempotency_key=key)
            return reserved[1]
        job = self.app.enqueue("good", number, idempotency_key=key)
        assert job.duplicate is taken
        if taken and reserved is not None:
            assert job.id == reserved[1].id
            return reserved[1]
        made = self._made(job.id, type="good", number=number, most=5, key=key)
        self.keys[key] = (self.now + KEY_HOURS, made)
        return made

    @rule(count=st.integers(0, 5), priority=st.sampled_from((1, 3, 6)))
    def enqueue_many(self, count: int, priority: int) -> None:
        if priority == 6 and count:
            with pytest.raises(InvalidArgument):
                self.app.enqueue_many("good", range(count), priority=priority)
            return
        for number, job in enumerate(self.app.enqueue_many("good", range(count), priority=priority)):
            self._made(job.id, type="good", number=number, priority=priority, most=5)

    @rule(job=jobs)
    def cancel(self, job: Model) -> None:
        """CANC-01, CANC-12."""
        if not job.closed and not job.cancel_asked:
            job.cancel_asked = True
            job.state = "LEASED" if job.state == "LEASED" else "CANCELED"
        assert self.app.cancel(job.id, "why").state == job.state

    @rule(job=jobs)
    def retry(self, job: Model) -> None:
        """RETRY-08: what waits runs now, what failed runs again as another task, once however often asked."""
        if job.state in ("ENQUEUED", "LEASED", "SUCCEEDED"):
            with pytest.raises(IllegalMove):
                self.app.retry(job.id)
            return
        found = self.app.retry(job.id)
        if job.state == "RETRY_WAIT":
            assert found.id == job.id
            job.state, job.ready_at = "ENQUEUED", self.now
            return
        before = self.again.get(job.id)
        if before is not None and (self.now < before[0] or not before[1].closed):
            assert found.id == before[1].id
            return
        made = self._made(
            found.id,
            type=job.type,
            number=job.number,
            priority=job.priority,
            most=job.most,
            retry_of=job.id,
            expires_in=job.expires_in,
        )
        self.again[job.id] = (self.now + KEY_HOURS, made)

    @rule(job=jobs)
    def wait(self, job: Model) -> None:
        result = self.app.job(job.id).result
        match job.state:
            case "SUCCEEDED":
                assert result(timeout=10) == job.result
            case "FAILED":
                with pytest.raises(TaskFailed):
                    result(timeout=10)
            case "CANCELED":
                with pytest.raises(TaskCanceled, match="why"):
                    result(timeout=10)
            case "EXPIRED":
                with pytest.raises(TaskExpired):
                    result(timeout=10)
            case _:
                with pytest.raises(WaitTimeout):
                    result(timeout=0)

    @rule(job=jobs)
    def look(self, job: Model) -> None:
        view = self.app.get(job.id)
        self._compare(view, job)
        assert view.payload is not None
        assert view.payload[0].data == str(job.number).encode()
        if job.state != "CANCELED":  # one that is handed back then is shown as canceled, and spends no attempt
            assert sum(one.outcome != "released" for one in view.attempts) == view.attempt

    # --------------------------------------------------------------------------------------------------------- workers
    @precondition(lambda self: self.ready())
    @rule()
    def work(self) -> None:
        """A worker comes, does all that is ready, and goes."""
        with self.app.worker(tasks=TASKS, slots=3):
            limit = time.monotonic() + 20.0
            while any(view.state in ("ENQUEUED", "LEASED") for view in self._views(self.ready())):
                assert time.monotonic() < limit, "tasks that are ready are not run"
                time.sleep(0.001)
        for job in self.ready():
            job.started = True
            if job.type == "good":
                job.state, job.result = "SUCCEEDED", job.number
                job.attempt += 1
            else:
                job.failed(final=job.type == "fatal")

    def _views(self, jobs: list[Model]) -> list[m.TaskView]:
        return [self.app.get(job.id) for job in jobs]

    @precondition(lambda self: self.ready())
    @rule(capacity=st.integers(1, 4))
    def take(self, capacity: int) -> None:
        """A worker takes some, acknowledges them, and is at work. The most urgent come first."""

        async def take() -> list[m.Delivery]:
            if not self.incarnation:
                self.incarnation, self.polls = next(_numbers), 0
                await self.worker.open_session(m.OpenSession(self.incarnation, 1, "w", ["default"], 10))
            self.polls += 1
            taken = (await self.worker.poll(m.Poll(self.incarnation, self.polls, ["default"], capacity, 5.0))).tasks
            await self.worker.heartbeat(m.Heartbeat(self.incarnation, [m.Beat(one.lease) for one in taken]))
            return taken

        ready = sorted(self.ready(), key=lambda job: job.priority)
        taken = self.server.call(take())
        assert [self.models[one.task_id].priority for one in taken] == [job.priority for job in ready[:capacity]]
        for one in taken:
            job = self.models[one.task_id]
            assert job in ready
            assert one.attempt == job.attempt + 1
            job.state, job.started = "LEASED", True
            self.held[job.id] = one.lease

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=st.sampled_from(("succeeded", "failed", "released", "canceled")), twice=st.booleans())
    def complete(self, data: st.DataObject, outcome: str, twice: bool) -> None:
        """Said twice, it counts once and is answered alike (LEASE-05)."""
        job = self.models[data.draw(st.sampled_from(sorted(self.held, key=list(self.models).index)), "job")]
        lease = self.held.pop(job.id)
        done = m.Completion(lease, outcome)
        match outcome:
            case "succeeded":
                done.result = (Payload({"encoding": "json/plain"}, b'"by hand"'),)
                job.state, job.result = "SUCCEEDED", "by hand"
                job.attempt += 1
            case "failed":
                done.failure = Failure(message="no")
                job.failed()
            case "released":
                job.state = "CANCELED" if job.cancel_asked else "ENQUEUED"
            case _ if job.cancel_asked:
                job.attempt += 1
                job.state = "CANCELED"
            case _:
                self.held[job.id] = lease
        for _ in range(1 + twice):
            [answer] = self.server.call(self.worker.complete(m.Complete([done]))).outcomes
            assert answer.state == job.state if answer.error is None else job.id in self.held, (answer, job)

    @precondition(lambda self: self.held)
    @rule()
    def vanish(self) -> None:
        """That worker is gone, and its leases with it."""

        async def vanish() -> None:
            await self.worker.close_session(m.CloseSession(self.incarnation, "died"))
            await self.server.engine.apply([c.Reap(limit=1_000)])

        self.server.call(vanish())
        self._lose_all()

    def _lose_all(self) -> None:
        for job_id in self.held:
            self.models[job_id].failed()
        self.held.clear()
        self.incarnation = 0

    # ------------------------------------------------------------------------------------------------------------ time
    @rule(hours=st.sampled_from((0.5, 2.0, 30.0)))
    def pass_time(self, hours: float) -> None:
        """Alarms ring, leases that nobody keeps end: at once after such a jump nobody is declared dead, so a minute
        more."""
        self._step(hours * HOUR)
        for _ in range(15):
            self._step(4.0)
        self._lose_all()
        for job in self.models.values():
            if job.state == "RETRY_WAIT":
                job.state, job.ready_at = "ENQUEUED", self.now
            elif job.state == "ENQUEUED" and not job.started and (job.expires_at or self.now + 1) <= self.now:
                job.state = "EXPIRED"

    def _step(self, seconds: float) -> None:
        async def ring() -> None:
            await self.server.engine.apply([c.Ring(limit=1_000)])

        self.clock.advance(seconds)
        self.server.call(ring())

    # ------------------------------------------------------------------------------------------------------- all of it
    @invariant()
    def all_tasks_are_as_the_model_says(self) -> None:
        found: dict[str, m.TaskView] = {}
        cursor = None
        while True:
            page = self.app.find(limit=7, cursor=cursor)
            assert not found.keys() & {view.task_id for view in page.tasks}
            found |= {view.task_id: view for view in page.tasks}
            cursor = page.next
            if cursor is None:
                break
        assert found.keys() == self.models.keys()
        for job_id, job in self.models.items():
            self._compare(found[job_id], job)

    def _compare(self, view: m.TaskView, job: Model) -> None:
        running = job.state == "LEASED"
        assert (view.state, view.attempt) == (job.state, job.attempt + running), job
        assert (view.type, view.priority, view.max_attempts) == (job.type, job.priority, job.most)
        assert (view.idempotency_key, view.retry_of) == (job.key, job.retry_of)
        assert (view.cancel_requested_at is not None) == job.cancel_asked
        assert (view.closed_at is not None) == job.closed
        assert bool(view.waiting_for) is not job.closed

    @invariant()
    def queues_hold_what_the_model_says(self) -> None:
        states = [job.state for job in self.models.values()]
        ready = len(self.ready())
        counted = (ready, states.count("LEASED"), states.count("ENQUEUED") - ready, states.count("RETRY_WAIT"))
        found = {queue.name: queue for queue in self.app.queues()}
        if any(counted):
            queue = found["default"]
            assert (queue.ready, queue.running, queue.delayed, queue.retrying) == counted


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Machine]]:
    def postgres() -> Any:
        return request.getfixturevalue("postgres_server")

    clock = SteppedClock()
    folder = tmp_path_factory.mktemp("client")
    with running(request.param, folder, postgres, clock=clock.now) as server:
        yield type("Machine", (Machine,), {"server": server, "clock": clock})


def test_the_client_does_what_the_model_does(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=effort(12, steps=25))
