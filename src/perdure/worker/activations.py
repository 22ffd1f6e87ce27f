"""The thread in which the code of async workflows runs, so that code that blocks can stall neither the worker's loop
nor its heartbeats.

One thread is enough: the code only computes, and waiting is what workflows do elsewhere. To wake it costs more than
most activations, so it is woken once for all that it is given until it has done everything; the results come back with
one call of the loop. When the code hangs (watchdog.py), its activation is given up and a new thread takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from queue import SimpleQueue
from typing import Protocol

from perdure.core.model import Failure
from perdure.worker.watchdog import Hanging, Watchdog, interrupt


class Activation(Protocol):
    """Something to do in the thread."""

    def work(self) -> None:
        """In the thread; raises nothing but Hanging."""

    def done(self, fault: Failure | None) -> None:
        """On the loop: `work` has returned, or it hangs, as `fault` says."""

    def progress(self) -> int:
        """Changes as `work` gets further; from any thread."""
        ...


class Activations:
    """To be made and used on the worker's loop."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._given: deque[Activation] = deque()
        self._done: deque[Activation] = deque()
        self._lock = threading.Lock()
        self._calls: SimpleQueue[bool] = SimpleQueue()  #: to the thread: whether it is to go on
        self._called = False
        self._woken = False
        self._thread: threading.Thread | None = None
        self._running: Activation | None = None
        self._seen: Activation | None = None  #: by the watchdog
        self._open = 0  #: given, and not done

    def add(self, activation: Activation) -> None:
        if self._thread is None:
            self._start()
        if not self._open:
            self._watchdog.watch(self)
        self._open += 1
        with self._lock:
            self._given.append(activation)
            call = not self._called
            self._called = True
        if call:
            self._calls.put(True)

    def close(self) -> None:
        """Let the thread end, after what it was given."""
        if self._thread is not None:
            self._calls.put(False)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._main, name="perdure-workflows", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------------------------------------------- the thread
    def _main(self) -> None:
        with contextlib.suppress(Hanging):
            self._work()

    def _work(self) -> None:
        me = threading.current_thread()
        while self._calls.get():
            while (activation := self._next()) is not None:
                activation.work()
                with self._lock:
                    if self._thread is not me:
                        return  # it was given up, and what it did counts for nothing
                    self._running = None
                    self._done.append(activation)
                    wake = not self._woken
                    self._woken = True
                if wake:
                    with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has left
                        self._loop.call_soon_threadsafe(self._collect)

    def _next(self) -> Activation | None:
        """What to run now; None: it has to be called again."""
        with self._lock:
            self._called = bool(self._given)
            self._running = self._given.popleft() if self._given else None
            return self._running

    # ------------------------------------------------------------------------------------------------------ the loop
    def _collect(self) -> None:
        with self._lock:
            self._woken = False
            done, self._done = self._done, deque()
        self._finished(len(done))
        for activation in done:
            activation.done(None)

    def _finished(self, count: int) -> None:
        self._open -= count
        if not self._open:
            self._watchdog.leave(self)

    # -------------------------------------------------------------------------------------------------- the watchdog
    def thread(self) -> int | None:
        return None if self._running is None or self._thread is None else self._thread.ident

    def progress(self) -> object:
        self._seen = running = self._running
        return running, 0 if running is None else running.progress()

    def hangs(self, thread: int, fault: Failure) -> None:
        with self._lock:
            hanging = self._running
            if hanging is None or hanging is not self._seen:
                return
            self._running = None
            self._start()
            self._calls.put(True)
            interrupt(thread)
        self._finished(1)
        hanging.done(fault)
