"""What a test holds in its hand: an application on a stage of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from datetime import datetime, timedelta
from typing import Any

from perdure.app import AsyncPerdure, Perdure
from perdure.core.durations import Duration, seconds
from perdure.core.messages import TaskView
from perdure.core.states import State
from perdure.sdk.definition import Workflow
from perdure.sdk.extensions import Extensions
from perdure.sdk.handle import Runner
from perdure.sdk.task import Task
from perdure.testing.bad_end import BadEnd, error_of
from perdure.testing.clock import JumpingClock
from perdure.testing.inline import Inline, call
from perdure.testing.stage import Stage
from perdure.testing.stand_in import StandIns
from perdure.testing.waiting import Waiting, waiting
from perdure.worker.threads import Ended, Threads

URL = "sqlite:///:memory:"
_OPEN = (State.ENQUEUED, State.RETRY_WAIT)
_FAILED = (State.FAILED, State.EXPIRED)
App = Perdure | AsyncPerdure
AnyTask = Task[..., Any] | str


class AsyncEnvironment:
    """Perdure in memory, on the event loop of the test; see `jumping`. Async handlers run on this loop, plain ones in
    threads."""

    def __init__(self, stage: Stage, app: AsyncPerdure, stand_ins: StandIns) -> None:
        self._stage = stage
        self._stand_ins = stand_ins
        self.app = app  #: a client of this environment

    @property
    def now(self) -> datetime:
        """What the jumping clock shows, in UTC. It stands still but for jumps."""
        return self._stage.clock.moment

    async def run(self, duration: Duration | None = None, *, check: bool = True) -> None:
        """See Environment.run."""
        end = None if duration is None else self._stage.clock.after(seconds(duration, "duration"))
        before = {end.id for end in await self._bad_ends()}
        await self._stage.run(end, stuck=end is not None and not check)
        failed = [end for end in await self._bad_ends() if end.id not in before]
        if check and failed:
            raise error_of(failed)

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, check: bool = True
    ) -> None:
        """See Environment.advance."""
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        await self.run(length.total_seconds(), check=check)

    def replace(self, target: AnyTask | Workflow, function: Callable[..., Any]) -> None:
        """See Environment.replace."""
        self._stand_ins.put(target, function)

    async def enqueued(self, task: AnyTask | None = None) -> list[Waiting]:
        """See Environment.enqueued."""
        name = task.name if isinstance(task, Task) else task
        views = await self._stage.views(_OPEN, payload=True)
        return [waiting(view, self.app.converter) for view in views if name is None or view.type == name]

    async def failures(self) -> list[TaskView]:
        """See Environment.failures."""
        return await self._stage.views(_FAILED)

    async def _bad_ends(self) -> list[BadEnd]:
        jobs = [BadEnd.of_job(view) for view in await self._stage.views(_FAILED)]
        return jobs + [BadEnd.of_run(view) for view in await self._stage.failed_runs()]


class Environment:
    """Perdure in memory, beside the test; see `jumping`. Plain handlers run in the thread of the test, async ones on an
    event loop in another."""

    def __init__(self, inner: AsyncEnvironment, inline: Inline) -> None:
        self._inner = inner
        self._inline = inline
        self.app = Perdure(URL, **inner.app.extensions)  #: a client of this environment
        self.async_app = inner.app  #: the same for code on any event loop

    @property
    def now(self) -> datetime:
        """What the jumping clock shows, in UTC. It stands still but for jumps."""
        return self._inner.now

    def run(self, duration: Duration | None = None, *, check: bool = True) -> None:
        """Run what is due, jump to what is due next, and so on until no job is left, and no workflow that something
        could still happen to. With a `duration` (seconds, or text such as "1h") until so much time has passed on the
        clock; 0 runs only what is due now.

        Raises TaskFailed, with the stack as a note, for a job or a workflow that has FAILED meanwhile (children are
        their parents' business), and TaskExpired for a job that was too late to start; not with `check=False`.
        TaskFailed, too, when a turn of a workflow fails, by code that differs from the history for one; with a
        duration and `check=False` it is tried again as in production. TimeoutError when a handler still runs after
        the environment's `patience` and nothing else can happen.
        """
        self._inline.call(self._inner.run(duration, check=check))

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, check: bool = True
    ) -> None:
        """`run` for so long a time: `env.advance(days=2)`."""
        length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self.run(length.total_seconds(), check=check)

    def replace(self, target: AnyTask | Workflow, function: Callable[..., Any]) -> None:
        """From now on to the end of the environment `function` stands in for a @task, wherever that is called: as a
        job, an activity or a step; or for a @workflow, as that of a child. It is called as what it replaces is, with
        `(ctx, payload)`. A name stands also for what this process does not know, such as an activity of another
        service. Raises InvalidArgument for anything else: what a step calls by itself is replaced as in any test."""
        self._inner.replace(target, function)

    def enqueued(self, task: AnyTask | None = None) -> list[Waiting]:
        """The jobs (of this task, or with this name) that wait for their first or next attempt, in the order in which
        they were enqueued."""
        return self._inline.call(self._inner.enqueued(task))

    def failures(self) -> list[TaskView]:
        """All jobs that have FAILED or EXPIRED so far, in the order in which they were enqueued."""
        return self._inline.call(self._inner.failures())


class jumping:
    """`with jumping(app) as env:`, or `async with`: a place for tests in which jobs run at once and time only jumps.

    `apps` are the Perdure and AsyncPerdure objects that the code under test uses: inside the context their calls come
    here, whatever their URL, and handlers get the middleware, the converter and the lifespan of the first one. Waiting
    for a result (`job.result()`) runs jobs too, as far as that one needs it.

    start     what the clock shows first; the present by default
    slots     handlers at once: 1, so that they run one after the other and in a fixed order. With more, plain handlers
              run in threads of their own, as in production
    patience  seconds of real time after which a handler that still runs counts as hanging, and the clock jumps to its
              time limit (5)
    """

    def __init__(
        self, *apps: Perdure | AsyncPerdure, start: datetime | None = None, slots: int = 1, patience: float = 5.0
    ) -> None:
        spaces = {app.namespace or "default" for app in apps}
        if len(spaces) > 1:
            raise ValueError(f"one environment is one namespace, and these apps have {', '.join(sorted(spaces))}")
        self._apps = apps
        self._start = start
        self._slots = slots
        self._patience = patience
        extensions = apps[0].extensions if apps else Extensions()
        self._client = AsyncPerdure(URL, namespace=spaces.pop() if spaces else None, **extensions)
        self._stack = ExitStack()
        self._async_stack = AsyncExitStack()

    async def __aenter__(self) -> AsyncEnvironment:
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stage = self._stage(Threads)
            await stack.enter_async_context(stage.open())
            inner = AsyncEnvironment(stage, self._client, self._stand_ins(stack))
            for app in (inner.app, *self._apps):
                stack.enter_context(_redirected(app, stage, lambda work: call(work, loop)))
            self._async_stack = stack.pop_all()
        return inner

    async def __aexit__(self, *_: object) -> None:
        await self._async_stack.aclose()

    def __enter__(self) -> Environment:
        with ExitStack() as stack:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="perdure-testing", daemon=True)
            thread.start()
            stack.callback(_end, loop, thread)
            inline = Inline(loop)
            stage = self._stage(inline.threads if self._slots == 1 else Threads)
            opening = stage.open()
            inline.call(opening.__aenter__())
            stack.callback(lambda: inline.call(opening.__aexit__(None, None, None)))
            outer = Environment(AsyncEnvironment(stage, self._client, self._stand_ins(stack)), inline)
            for app in (outer.app, outer.async_app, *self._apps):
                stack.enter_context(_redirected(app, stage, inline.call))
            self._stack = stack.pop_all()
        return outer

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @staticmethod
    def _stand_ins(stack: ExitStack | AsyncExitStack) -> StandIns:
        stand_ins = StandIns()
        stack.callback(stand_ins.undo)
        return stand_ins

    def _stage(self, threads: Callable[[Ended], Threads]) -> Stage:
        return Stage(JumpingClock(self._start), self._client, self._slots, self._patience, threads)


def _redirected(app: App, stage: Stage, run: Runner) -> AbstractContextManager[None]:
    if isinstance(app, Perdure):
        return app.redirected(stage.service, run)
    return app.redirected(stage.service)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    call(loop.shutdown_default_executor(), loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
