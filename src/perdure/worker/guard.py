"""Stops workflow code from reaching out of itself: sockets, files, processes, threads, sleeps (RPLY-14).

Python tells audit hooks of such things before they happen. A hook stays for the life of the process, so the first thing
it does is look whether any thread is running workflow code. What Python 3.11 has no audit event for, `time.sleep` and
starting a thread, is wrapped, with the same look. Reading the clock and randomness cannot be seen here; `perdure lint`
looks for them.

Importing a module may open files, and so may logging, time zones and the sources that tracebacks show: these are let
through, whatever they do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any
from zoneinfo import TZPATH

from perdure.sdk.workflow_errors import ForbiddenError

_watched: dict[int, int] = {}
"""Threads that run workflow code now, and how deep."""

_installed: list[bool] = []
_installing = threading.Lock()

_FILES = "file access", "do it in a step or an activity"
_SOCKETS = "the network", "do it in a step or an activity"
_PROCESSES = "other processes", "do it in a step or an activity"
_ADVICE: dict[str, tuple[str, str]] = {
    "open": _FILES,
    **dict.fromkeys(("os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link"), _FILES),
    **dict.fromkeys(("os.symlink", "os.truncate", "os.chmod", "os.chown", "os.utime", "sqlite3.connect"), _FILES),
    **dict.fromkeys(("socket.__new__", "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"), _SOCKETS),
    **dict.fromkeys(("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"), _SOCKETS),
    **dict.fromkeys(("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.spawn"), _PROCESSES),
    **dict.fromkeys(("os.posix_spawn", "os.kill", "os.startfile"), _PROCESSES),
    "time.sleep": ("time.sleep", "use ctx.sleep, or asyncio.sleep in async code: it is durable"),
    "_thread.start_new_thread": ("threads", "use asyncio tasks or ctx.parallel; what computes long belongs in a step"),
}
"""Audit event -> what it is, and what to do instead."""

_TRUSTED = ("importlib", "logging", "linecache", "zoneinfo", "tracemalloc", "encodings")
"""Modules of the standard library, by the first part of their name, that may do what they want."""


@contextmanager
def watching() -> Iterator[None]:
    """In here this thread runs workflow code."""
    if not _installed:
        _install()
    me = get_ident()
    _watched[me] = _watched.get(me, 0) + 1
    try:
        yield
    finally:
        _leave(me)


@contextmanager
def pausing() -> Iterator[None]:
    """In here this thread runs something else for a while: a step of plain code, or the worker's own."""
    me = get_ident()
    depth = _watched.pop(me, 0)
    try:
        yield
    finally:
        if depth:
            _watched[me] = depth


def _leave(me: int) -> None:
    depth = _watched[me] - 1
    if depth:
        _watched[me] = depth
    else:
        del _watched[me]


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watched and event in _ADVICE and get_ident() in _watched:
        if event == "open" and isinstance(args[0], str) and args[0].startswith(TZPATH):
            return  # zoneinfo, whose C code is in no frame
        _forbid(event)


def _forbid(event: str) -> None:
    """Raises, unless something that is trusted asks."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in _TRUSTED:
            return
        if name.startswith("perdure.worker."):
            break  # what is further out runs the workflow
        frame = frame.f_back
    what, advice = _ADVICE[event]
    raise ForbiddenError(f"workflow code must not use {what} ({event}): {advice}")


def _guarded(function: Callable[..., Any], event: str) -> Callable[..., Any]:
    @wraps(function)
    def guarded(*args: Any, **options: Any) -> Any:
        if _watched and get_ident() in _watched:
            _forbid(event)
        return function(*args, **options)

    return guarded


def _install() -> None:
    """Once, when workflow code runs for the first time: processes without pay nothing."""
    with _installing:
        if not _installed:
            sys.addaudithook(_hook)
            time.sleep = _guarded(time.sleep, "time.sleep")
            start = _guarded(threading.Thread.start, "_thread.start_new_thread")
            threading.Thread.start = start  # type: ignore[method-assign]
            _installed.append(True)
