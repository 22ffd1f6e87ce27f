"""Finds workflow code that does not come back: that loops, or blocks in spite of guard.py.

Code only computes between two waits, so what takes longer than the limit is a fault of it: its turn fails, with the
place where it is, and others go on. The clock is that of the code which runs in a thread, so many of them together are
no reason (field case B109), and it starts again whenever the code gets further in its history. Time in which the whole
process did not run does not count.
"""

from __future__ import annotations

import asyncio
import ctypes
import linecache
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import Protocol

from perdure.core.model import Failure
from perdure.sdk.failure import MAX_STACK, cut

LIMIT_SECONDS = 2.0
"""Longest time that workflow code may compute between two waits."""
_LOOKS = 8
"""At what runs, within the limit."""
_OURS = str(Path(__file__).parent.parent)
_LIBRARY = sysconfig.get_path("stdlib")


class Hanging(BaseException):
    """Raised in a thread that was given up, to end a loop there if it can be ended."""


class Watched(Protocol):
    """A thread with workflow code. Methods are called on the loop."""

    def thread(self) -> int | None:
        """The identity of the thread; None while no workflow code runs in it."""
        ...

    def progress(self) -> object:
        """Something else each time that the code gets further."""
        ...

    def hangs(self, thread: int, fault: Failure) -> None:
        """The code does not come back, unless it has this very moment."""


class Watchdog:
    """To be used on one event loop; `limit` is in seconds."""

    def __init__(self, limit: float = LIMIT_SECONDS) -> None:
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._watched: dict[Watched, tuple[int | None, object, int]] = {}  #: thread, progress, looks without change
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, watched: Watched) -> None:
        """Until `leave`; harmless when repeated."""
        self._watched.setdefault(watched, (None, None, 0))
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit / _LOOKS, self._look)

    def leave(self, watched: Watched) -> None:
        self._watched.pop(watched, None)

    def close(self) -> None:
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        for watched, (thread, progress, looks) in list(self._watched.items()):
            now, at = watched.thread(), watched.progress()
            looks = looks + 1 if (now, at) == (thread, progress) and now is not None else 0
            self._watched[watched] = (now, at, looks)
            if now is not None and looks >= _LOOKS:
                watched.hangs(now, _where(now, self._limit))
        if self._watched:
            self._timer = self._loop.call_later(self._limit / _LOOKS, self._look)


def interrupt(thread: int) -> None:
    """Raise Hanging there, as soon as it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Hanging))


def _where(thread: int, limit: float) -> Failure:
    """That the code in a thread hangs, and at which line of the application."""
    frame = sys._current_frames().get(thread)
    place = "an unknown place"
    stack = ""
    if frame is not None:
        at = _applications(frame)
        line = linecache.getline(at.f_code.co_filename, at.f_lineno).strip()
        place = f"{at.f_code.co_filename}:{at.f_lineno} in {at.f_code.co_name}" + (f" ({line})" if line else "")
        stack = "".join(traceback.format_stack(frame))[-MAX_STACK:]
    text = (
        f"the workflow's code did not come back to a wait within {limit:g} s; it is at {place}. What takes long or"
        " blocks belongs in a step or an activity"
    )
    return Failure(message=cut(text), code="deadlock", type="Deadlock", stack=stack)


def _applications(innermost: FrameType) -> FrameType:
    """The innermost frame of the application's own code, where there is one."""
    frame: FrameType | None = innermost
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_OURS, "<frozen")) and not _is_standard(file):
            return frame
        frame = frame.f_back
    return innermost


def _is_standard(file: str) -> bool:
    return file.startswith(_LIBRARY) and "site-packages" not in file
