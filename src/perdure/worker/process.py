"""What a worker process hears from outside: signals, and the end of its supervisor.

The first SIGTERM or SIGINT drains; the second exits at once with status 128 + its number (field case B123). A
supervised process also drains when its supervisor says so by the pair of sockets that they share, or is gone, however
that died. The other way it tells how it is, once a second, and that it wants to be replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable

import msgspec

from perdure.worker.receipts import Receipts
from perdure.worker.status import WorkerStatus

SUPERVISED = "PERDURE_SUPERVISED"
"""Environment variable of a supervised process: its incarnation and the descriptors of its socket and its receipts,
such as "123:4:5"."""
LEAVE_SECONDS = 5.0
"""For the interpreter of a worker that is done to end by itself."""
GC_THRESHOLD = 50_000
"""Objects that a server or worker process makes before the garbage collector looks for cycles among them. Requests have
none, and Python's own 700 make it look several times a batch."""


def on_stop_signals(stop: Callable[[], None], force: Callable[[], None] | None = None) -> None:
    """Call `stop`, on the running loop, at the first SIGTERM or SIGINT; at the second call `force` and exit. For a
    process whose only business this loop is: the handlers stay."""
    loop = asyncio.get_running_loop()
    heard = False

    def hear(number: int) -> None:
        nonlocal heard
        if heard:
            if force is not None:
                force()
            os._exit(128 + number)
        heard = True
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)


class Lifeline:
    """A supervised process's tie to its supervisor, which also chose its incarnation."""

    def __init__(self, incarnation: int, tie: int, receipts: int) -> None:
        self.incarnation = incarnation
        self.receipts = Receipts(receipts)
        self._tie = tie
        os.set_blocking(tie, False)

    @staticmethod
    def taken() -> Lifeline | None:
        """That of this process, if it is supervised; once, so that processes which handlers start have none."""
        value = os.environ.pop(SUPERVISED, "")
        if not value:
            return None
        incarnation, tie, receipts = map(int, value.split(":"))
        os.set_inheritable(tie, False)
        lifeline = Lifeline(incarnation, tie, receipts)
        os.close(receipts)  # it is mapped
        return lifeline

    def watch(self, ended: Callable[[], None]) -> None:
        """Call `ended`, on the running loop, when the supervisor wants this process to drain, or is gone."""
        loop = asyncio.get_running_loop()

        def hear() -> None:
            loop.remove_reader(self._tie)
            ended()

        loop.add_reader(self._tie, hear)

    def tell(self, report: ProcessReport) -> None:
        """To the supervisor. One that does not listen misses it: there will be another in a second."""
        with contextlib.suppress(OSError):
            os.write(self._tie, msgspec.json.encode(report) + b"\n")


class ProcessReport(msgspec.Struct, omit_defaults=True):
    """A line from a worker process to its supervisor."""

    status: WorkerStatus | None = None
    leaving: bool = False  #: it drains and wants another process to take its place at once


def leave_soon() -> None:
    """To be called when all is done: ends this process in a few seconds, should a thread that a handler left behind
    keep the interpreter (field case B123)."""
    timer = threading.Timer(LEAVE_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()


def calm_garbage_collector() -> None:
    """For a process that has started what it is going to run: modules and the like are not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
