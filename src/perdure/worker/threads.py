"""Threads for plain handlers, workflows and steps, as many as there are at once.

A thread hands its result over by a deque, and wakes the loop once for all results of a burst: a call to the loop
for each costs more than most handlers (measured: 5.0k against 7.6k steps a second). The threads are daemons: a
handler that never returns must not keep a worker from leaving (field case B123); ThreadPoolExecutor would wait for
it at exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from perdure.core.messages import Completion
from perdure.worker.execute import Run, run_plain

T = TypeVar("T")
Ended = Callable[[Run, Completion | None], None]


class Threads:
    """Runs plain handlers; `ended` is called on the loop with what each has to report."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._news: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._woken = False
        self._threads = 0
        self._busy = 0

    def start(self, run: Run) -> None:
        """Run its handler."""
        self.call(partial(run_plain, run), partial(self._ended, run))

    def call(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run `work`, which does not raise, in a free thread, or in a new one; `done` is called on the loop."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"perdure-handler-{self._threads}", daemon=True).start()
        self._given.put(lambda: self.tell(partial(self._finish, done, work())))

    def ask(self, question: Callable[[Callable[[T], None]], None]) -> T:
        """In one of the threads: `question` is called on the loop with the function that takes its answer, at any
        time; this waits for it."""
        answers: SimpleQueue[T] = SimpleQueue()
        self.tell(partial(question, answers.put))
        return answers.get()

    def close(self) -> None:
        """Let the threads end, each after what it runs."""
        for _ in range(self._threads):
            self._given.put(None)

    def _work(self) -> None:
        while (work := self._given.get()) is not None:
            work()

    def _finish(self, done: Callable[[T], None], result: T) -> None:
        self._busy -= 1
        done(result)

    def tell(self, news: Callable[[], None]) -> None:
        """In one of the threads: `news` is called on the loop."""
        with self._lock:
            self._news.append(news)
            wake = not self._woken
            self._woken = True
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker left without this thread
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        with self._lock:
            self._woken = False
            news, self._news = self._news, deque()
        for happen in news:
            happen()
