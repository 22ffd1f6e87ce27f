"""The event loop of an async workflow: asyncio as documented, but nothing in it depends on anything but the history.

What is ready runs in the order in which it became ready. `call_later`, and with it `asyncio.sleep`, `timeout` and
`wait_for`, are durable timers, and cancelling the handle cancels the timer. `time()` is the time of the turn. Tasks and
futures have numbers for hashes, so that the sets of `asyncio.wait` and TaskGroup iterate in an order that is the same
on replay (field case B084). Whatever would reach out of the code is refused.

It is no loop for the thread: `run_ready` runs what is ready and returns, on whatever thread, and also while another
loop is running there, whose place it takes meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio import AbstractEventLoop, Handle, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, NoReturn

from perdure.sdk.operations import Timer
from perdure.sdk.workflow_errors import Dropped, ForbiddenError, NonDeterminismError

log = logging.getLogger("perdure.workflow")

_IN_STEP = "it belongs in a step or an activity"
REFUSED = {
    "threads": ("run_in_executor", "call_soon_threadsafe", "set_default_executor"),
    "sockets": (
        *("create_connection", "create_server", "create_unix_connection", "create_unix_server", "sendfile"),
        *("create_datagram_endpoint", "start_tls", "connect_accepted_socket", "getaddrinfo", "getnameinfo"),
        *("sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendto"),
        *("sock_connect", "sock_accept", "sock_sendfile", "add_reader", "add_writer"),
    ),
    "subprocesses": ("subprocess_exec", "subprocess_shell", "connect_read_pipe", "connect_write_pipe"),
    "signals of the system": ("add_signal_handler", "remove_signal_handler"),
    "another run of the loop": ("run_forever", "run_until_complete", "stop", "close"),
}
"""What workflow code must not do, and the methods by which it would."""


class WorkflowTask(asyncio.Task[Any]):
    """`number` counts the tasks and futures of one run."""

    number: int

    def __hash__(self) -> int:
        return self.number


class WorkflowFuture(asyncio.Future[Any]):
    number: int

    def __hash__(self) -> int:
        return self.number


class _DurableHandle(TimerHandle):
    """A callback that a durable timer calls."""

    timer: Timer | None = None


class WorkflowLoop(AbstractEventLoop):
    """`now` gives the time in microseconds; `start_timer` begins a durable timer of so many seconds."""

    def __init__(self, now: Callable[[], int], start_timer: Callable[[float], Timer]) -> None:
        self._now = now
        self._start_timer = start_timer
        self._ready: deque[Handle] = deque()
        self._numbers = 0
        self._running = False
        self.tasks: dict[WorkflowTask, None] = {}  #: that have not ended; the only strong references to some

    # ------------------------------------------------------------------------------------------------- for the driver
    def run_ready(self) -> bool:
        """Run until nothing is ready. False when nothing was."""
        ready = self._ready
        if not ready:
            return False
        while ready:
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
        return True

    @contextmanager
    def running(self) -> Iterator[None]:
        """In here this is the thread's running loop."""
        before = events._get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        events._set_running_loop(self)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            events._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)

    # -------------------------------------------------------------------------------------------------------- asyncio
    def time(self) -> float:
        return self._now() / 1_000_000

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = _DurableHandle(self.time() + delay, callback, args, self, context)
        seconds = round(delay, 6)
        if seconds <= 0:
            self._ready.append(handle)
        else:
            handle.timer = self._start_timer(seconds)
            handle.timer.pending.when_ended(lambda _: self._ready.append(handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Called by TimerHandle.cancel."""
        if isinstance(handle, _DurableHandle) and handle.timer is not None:
            handle.timer.cancel()

    def create_future(self) -> WorkflowFuture:
        future = WorkflowFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        return future

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **options: Any
    ) -> WorkflowTask:
        if _is_unordered(sys._getframe(1)):
            coro.close()
            raise ForbiddenError(
                "asyncio.as_completed starts coroutines in an order that is not the same on replay: give it tasks, made"
                " with asyncio.create_task"
            )
        self._numbers += 1
        task = _Numbered.task(self._numbers, coro, self, name or f"task-{self._numbers}", context)
        self.tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: Any) -> None:
        self.tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nobody awaits, or one in a callback: as with asyncio it is logged, and that is all. What
        fails the turn is told elsewhere."""
        error = context.get("exception")
        if not isinstance(error, (NonDeterminismError, ForbiddenError, Dropped)):
            log.error("workflow code: %s", context.get("message"), exc_info=error)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


class _Numbered:
    """Makes tasks whose hash is known before asyncio puts them into its sets."""

    @staticmethod
    def task(
        number: int, coro: Coroutine[Any, Any, Any], loop: WorkflowLoop, name: str, context: Context | None
    ) -> WorkflowTask:
        task = WorkflowTask.__new__(WorkflowTask)
        task.number = number
        WorkflowTask.__init__(task, coro, loop=loop, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it ends with its run, wherever it is then
        asyncio._unregister_task(task)  # all_tasks is a set of the whole process, and thousands have the same number
        return task


def _is_unordered(frame: Any) -> bool:
    """Whether asyncio.as_completed is asking: it goes through a set of coroutines, which have no numbers."""
    for _ in range(4):
        if frame is None:
            return False
        if frame.f_code.co_name == "as_completed" and frame.f_globals.get("__name__") == "asyncio.tasks":
            return True
        frame = frame.f_back
    return False


def _refuse(what: str, method: str) -> Callable[..., NoReturn]:
    def refused(*args: Any, **options: Any) -> NoReturn:
        raise ForbiddenError(f"workflow code must not use {what} ({method}): {_IN_STEP}")

    return refused


for _what, _methods in REFUSED.items():
    for _method in _methods:
        setattr(WorkflowLoop, _method, _refuse(_what, _method))
