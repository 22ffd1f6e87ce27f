"""Plain handlers in the thread of the test itself.

A handler then sees what the test has made and not committed: the connection of a database that belongs to this thread
(Django's TestCase), and a debugger stops in it. The thread runs them while it waits for an answer of the environment,
and one that itself waits for another job runs that one meanwhile. While it waits for nothing, or does something else
such as a request to an application under test, handlers get threads of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import Context
from queue import SimpleQueue
from typing import Any, TypeVar

from perdure.core.messages import Completion
from perdure.worker.execute import Run, run_plain
from perdure.worker.threads import Ended, Threads

T = TypeVar("T")


def call(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """The outcome of `work` on the loop of another thread."""
    return _submit(work, loop).result()


def _submit(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    if asyncio._get_running_loop() is loop:
        work.close()
        raise RuntimeError("a blocking call on the event loop that must answer it; in async code use AsyncPerdure")
    return asyncio.run_coroutine_threadsafe(work, loop)


class Inline:
    """The thread that makes one of these, as a place for handlers and for calls to `loop`, which runs in another."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._inbox: SimpleQueue[tuple[Run, Ended] | None] = SimpleQueue()
        self._waiting: list[Future[Any]] = []  #: what calls of this thread wait for, one in the other
        self._lock = threading.Lock()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work` on the loop; meanwhile the calling thread runs handlers, if it is the one."""
        future = _submit(work, self._loop)
        if threading.get_ident() != self._thread:
            return future.result()
        future.add_done_callback(lambda _: self._inbox.put(None))
        with self._lock:
            self._waiting.append(future)
        try:
            while not future.done():
                self._run_next()
        except BaseException:
            future.cancel()
            raise
        finally:
            with self._lock:
                self._waiting.pop()
        while not self._waiting and not self._inbox.empty():  # given for a call that another thread made
            self._run_next()
        return future.result()

    def threads(self, ended: Ended) -> Threads:
        """What a worker runs plain handlers in."""
        return _OneThread(ended, self)

    def take(self, run: Run, ended: Ended) -> bool:
        """On the loop: run a handler in the thread, if that waits."""
        with self._lock:
            if self._waiting:
                self._inbox.put((run, ended))
            return bool(self._waiting)

    def _run_next(self) -> None:
        """Wait for something to run, or for the end of a call: perhaps one around this one, so each looks again."""
        given = self._inbox.get()
        if given is None or given[0].ended:
            return
        run, ended = given
        completion = Context().run(run_plain, run)
        interrupted = _is_interrupt(completion)
        if interrupted:  # before the end is known, so that nothing more is run: not this one again, and no other
            for future in self._waiting:
                future.cancel()
        self._loop.call_soon_threadsafe(ended, run, completion)
        if interrupted:
            raise KeyboardInterrupt


class _OneThread(Threads):
    def __init__(self, ended: Ended, inline: Inline) -> None:
        super().__init__(ended)
        self._inline = inline

    def start(self, run: Run) -> None:
        if not self._inline.take(run, self._ended):
            super().start(run)


def _is_interrupt(completion: Completion | None) -> bool:
    """Ctrl-C, which was meant for the test and not for the handler that happened to run."""
    failure = completion.failure if completion is not None else None
    return failure is not None and failure.type == "KeyboardInterrupt"
