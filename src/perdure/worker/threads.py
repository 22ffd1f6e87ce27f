"""Threads for plain handlers, as many as there are handlers at once, at most one a slot.

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
from queue import SimpleQueue

from perdure.core.messages import Completion
from perdure.worker.execute import Run, run_plain

Ended = Callable[[Run, Completion | None], None]


class Threads:
    """Runs plain handlers; `ended` is called on the loop with what each has to report."""

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._given: SimpleQueue[Run | None] = SimpleQueue()
        self._done: deque[tuple[Run, Completion | None]] = deque()
        self._lock = threading.Lock()
        self._woken = False
        self._threads = 0
        self._busy = 0

    def start(self, run: Run) -> None:
        """Run its handler in a free thread, or in a new one."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name=f"perdure-handler-{self._threads}", daemon=True).start()
        self._given.put(run)

    def close(self) -> None:
        """Let the threads end, each after the handler that it runs."""
        for _ in range(self._threads):
            self._given.put(None)

    def _work(self) -> None:
        while (run := self._given.get()) is not None:
            self._hand_over(run, run_plain(run))

    def _hand_over(self, run: Run, completion: Completion | None) -> None:
        with self._lock:
            self._done.append((run, completion))
            wake = not self._woken
            self._woken = True
        if wake:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker left without this handler
                self._loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        with self._lock:
            self._woken = False
            done, self._done = self._done, deque()
        for run, completion in done:
            self._busy -= 1
            self._ended(run, completion)
