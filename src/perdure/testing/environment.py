"""What a test holds in its hand: an application on a stage of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from datetime import datetime
from typing import Any

from perdure.app import AsyncPerdure, Perdure
from perdure.core.durations import Duration, seconds
from perdure.core.errors import TaskExpired, TaskFailed
from perdure.core.messages import TaskView
from perdure.core.model import Failure
from perdure.core.states import State
from perdure.sdk.extensions import Extensions
from perdure.sdk.handle import Runner
from perdure.sdk.task import Task
from perdure.testing.clock import JumpingClock
from perdure.testing.inline import Inline, call
from perdure.testing.stage import Stage
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

    def __init__(self, stage: Stage, app: AsyncPerdure) -> None:
        self._stage = stage
        self.app = app  #: a client of this environment

    @property
    def now(self) -> datetime:
        """What the jumping clock shows, in UTC. It stands still but for jumps."""
        return self._stage.clock.moment

    async def run(self, duration: Duration | None = None, *, check: bool = True) -> None:
        """See Environment.run."""
        end = None if duration is None else self._stage.clock.after(seconds(duration, "duration"))
        before = {view.task_id for view in await self._stage.views(_FAILED)}
        await self._stage.run(end)
        failed = [view for view in await self._stage.views(_FAILED) if view.task_id not in before]
        if check and failed:
            raise _error(failed)

    async def enqueued(self, task: AnyTask | None = None) -> list[Waiting]:
        """See Environment.enqueued."""
        name = task.name if isinstance(task, Task) else task
        views = await self._stage.views(_OPEN, payload=True)
        return [waiting(view, self.app.converter) for view in views if name is None or view.type == name]

    async def failures(self) -> list[TaskView]:
        """See Environment.failures."""
        return await self._stage.views(_FAILED)


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
        """Run what is due, jump to what is due next, and so on until no job is left. With a `duration` (seconds, or
        text such as "1h") until so much time has passed on the clock; 0 runs only what is due now.

        Raises TaskFailed, with the handler's stack as a note, for a job that has FAILED meanwhile, and TaskExpired for
        one that was too late to start; not with `check=False`. TimeoutError when a handler still runs after the
        environment's `patience` and nothing else can happen.
        """
        self._inline.call(self._inner.run(duration, check=check))

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
            inner = AsyncEnvironment(stage, self._client)
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
            outer = Environment(AsyncEnvironment(stage, self._client), inline)
            for app in (outer.app, outer.async_app, *self._apps):
                stack.enter_context(_redirected(app, stage, inline.call))
            self._stack = stack.pop_all()
        return outer

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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


def _error(failed: list[TaskView]) -> TaskFailed | TaskExpired:
    """For the first of them; the others are named in its notes."""
    first, *others = failed
    error = (
        TaskFailed(first.failure or Failure(message="no reason is known")) if first.state == "FAILED" else TaskExpired()
    )
    error.add_note(f"of task {first.type} ({first.task_id}), after {first.attempt} attempts")
    if first.failure is not None and first.failure.stack:
        error.add_note(f"In its handler, innermost call last:\n{first.failure.stack}")
    for view in others:
        error.add_note(f"{view.state} as well: task {view.type} ({view.task_id})")
    return error
