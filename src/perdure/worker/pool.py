"""Child processes for handlers that compute (`@task(process=True)`), the worker's side of them (child.py is the other).

Each is fed and heard by a thread of its own, so nothing that a child does to its pipe holds up the worker. A child runs
one handler at a time and is used again. It is started afresh (spawn), never forked: a fork would copy the worker's
connections and whatever its threads had locked.

A handler that is to stop is told so at once; after a moment SIGTERM raises Cancelled in it, whatever Python code it is
in, so that its `finally` blocks run; and then SIGKILL ends the process with all that the handler had started. A
process that ends without an answer fails its own attempt, "process_died", and the next task gets another process.

Libraries for this (concurrent.futures, pebble) have no way for messages while a function runs, so the parts of
multiprocessing are used themselves.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from perdure.core.messages import Completion
from perdure.worker import child
from perdure.worker.execute import Environment, Run, broken

log = logging.getLogger("perdure.worker")

Ended = Callable[[Run, Completion | None], None]

COOPERATE_SECONDS = 2.0
"""For a handler to look at `ctx` after it was asked to stop, before SIGTERM."""
TERMINATE_SECONDS = 3.0
"""From SIGTERM to SIGKILL: for its `finally` blocks."""
_IMPATIENT = {"lost": 0.2, "drain": 0.3}
"""Before SIGTERM where somebody else runs the task, or the worker is about to leave."""
_LOOK_SECONDS = 1.0  #: between looks for a child that has died while another process holds its end of the pipe
_JOIN_SECONDS = 5.0
_SIGNALS = {number.value: number.name for number in signal.Signals} | {9: "SIGKILL; is the machine out of memory?"}


class Pool:
    """At most `size` processes; `ended` is called on the loop with what each handler has to report, `changed` from any
    thread when one gave progress or a checkpoint. A process leaves after `max_tasks` tasks, or after one that left it
    with more than `max_memory` bytes. TypeError when the environment cannot be pickled."""

    def __init__(
        self,
        ended: Ended,
        changed: Callable[[Run], None],
        environment: Environment,
        size: int,
        max_tasks: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        self._ended = ended
        self._changed = changed
        self._size = size
        try:
            # What an application opens for its handlers is of one process, and is not taken along.
            self._environment = pickle.dumps(replace(environment, state=None))
        except Exception as error:
            raise TypeError(f"middleware and converter cannot be sent to the processes of handlers: {error}") from error
        self._limits = (max_tasks, max_memory)
        self._loop = asyncio.get_running_loop()
        self._given: SimpleQueue[Run | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._serving: dict[Run, _Process] = {}
        self._processes: set[_Process] = set()
        self._threads = 0
        self._busy = 0
        self._closed = False

    def start(self, run: Run) -> None:
        """Run its handler in a free process, or in a new one; when all are busy, in the first that is free again."""
        self._busy += 1
        if self._threads < min(self._busy, self._size):
            self._threads += 1
            threading.Thread(target=self._work, name=f"perdure-process-{self._threads}", daemon=True).start()
            if self._threads == 1:
                atexit.register(self.kill)  # before multiprocessing waits for its children
        self._given.put(run)

    def stop(self, run: Run) -> None:
        """Its handler is asked to stop, for the reason that `run.ctx.stop` gives. On the loop; harmless when it has
        ended."""
        process = self._serving.get(run)
        if process is None:
            return
        process.send(("stop", run.ctx.stop))
        patience = _IMPATIENT.get(run.ctx.stop, COOPERATE_SECONDS)
        self._loop.call_later(patience, self._signal, run, process, signal.SIGTERM)
        self._loop.call_later(patience + TERMINATE_SECONDS, self._signal, run, process, signal.SIGKILL)

    def pids(self) -> list[int]:
        """Process ids of the children."""
        with self._lock:
            return [process.pid for process in self._processes]

    def kill(self) -> None:
        """End all processes at once; what runs in them ends as it was asked to, or as died."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.signal(signal.SIGKILL)

    def close(self) -> None:
        """Let the processes leave. To be called when no handler runs."""
        atexit.unregister(self.kill)
        for _ in range(self._threads):
            self._given.put(None)

    def _signal(self, run: Run, process: _Process, number: signal.Signals) -> None:
        with self._lock:  # else it may have been reaped, and its number given to another
            if self._serving.get(run) is not process:
                return
            process.signal(number)
        if number == signal.SIGKILL:
            item = run.delivery
            log.warning("task %s (%s) did not stop; its process is killed", item.task_id, item.type)

    # ------------------------------------------------------------------------------------ the thread of each process
    def _work(self) -> None:
        process: _Process | None = None
        while (run := self._given.get()) is not None:
            process, completion = self._run(run, process)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker left without this handler
                self._loop.call_soon_threadsafe(self._collect, run, completion)
        if process is not None:
            self._forget(process)

    def _run(self, run: Run, process: _Process | None) -> tuple[_Process | None, Completion | None]:
        """The process to use next, and what the handler has to report."""
        if run.ctx.stop:
            return process, broken(run, "process_died", "it was stopped before it started")
        if process is not None and not process.is_alive():
            self._forget(process)
            process = None
        used = process is not None
        try:
            process = process or self._spawn()
        except Exception as error:  # noqa: BLE001 - no memory, no process ids; or the program cannot be started again
            return None, broken(run, "process_died", f"no process could be started: {error!r}")
        with self._lock:
            self._serving[run] = process
        completion, leaving, died = None, True, False
        try:
            completion, leaving = self._converse(run, process)
        except Exception:  # noqa: BLE001 - whatever happened to the pipe, the process is of no use any more
            died = True
        with self._lock:
            del self._serving[run]
        if not leaving:
            return process, completion
        how = self._forget(process)
        if died and used and not process.begun:  # it had died before, and not even its parent could see that yet
            return self._run(run, None)
        if died:
            completion = broken(run, "process_died", f"the process of the handler {how}")
        return None, completion

    def _converse(self, run: Run, process: _Process) -> tuple[Completion | None, bool]:
        """The handler from start to end: its completion, and whether its process leaves. Raises when that died."""
        assert run.task is not None
        process.begun = False
        process.send(("run", run.delivery, run.task.function.__module__, run.task.name))
        if run.ctx.stop:  # meanwhile
            self._loop.call_soon_threadsafe(self.stop, run)
        while True:
            match process.receive():
                case ("begun",):
                    process.begun = True
                case ("checkpoint", checkpoint):
                    run.ctx.pending_checkpoint = checkpoint
                    self._changed(run)
                case ("progress", progress):
                    run.ctx.pending_progress = progress
                    self._changed(run)
                case ("log", bytes() as record):
                    _relog(record)
                case ("ended", completion, leaving):
                    return self._completed(run, completion), leaving

    def _completed(self, run: Run, completion: Completion | None) -> Completion | None:
        """With what no heartbeat has brought to the server, also of what the child had told before."""
        if completion is None or run.ctx.stop == "lost":
            return None
        ctx = run.ctx
        if completion.checkpoint is None and ctx.pending_checkpoint is not run.sent_checkpoint:
            completion.checkpoint = ctx.pending_checkpoint
        if completion.progress is None and ctx.pending_progress is not run.sent_progress:
            completion.progress = ctx.pending_progress
        return completion

    def _collect(self, run: Run, completion: Completion | None) -> None:
        self._busy -= 1
        self._ended(run, completion)

    def _spawn(self) -> _Process:
        process = _Process(self._environment, *self._limits)
        with self._lock:
            if not self._closed:
                self._processes.add(process)
                return process
        process.signal(signal.SIGKILL)
        process.end()
        raise RuntimeError("the worker is leaving")

    def _forget(self, process: _Process) -> str:
        """Let go of a process that leaves or has died; says how it ended."""
        how = process.end()
        with self._lock:
            self._processes.discard(process)
        return how


class _Process:
    """A child process and the pipe to it."""

    def __init__(self, environment: bytes, max_tasks: int | None, max_memory: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(
            target=child.serve,
            args=(end, environment, logging.getLogger().level, max_tasks, max_memory),
            name="perdure-handlers",
        )
        try:
            self._process.start()
        except BaseException:
            self._pipe.close()
            raise
        finally:
            end.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.begun = False  #: it has read what it is to run
        self._sending = threading.Lock()

    def send(self, message: tuple[Any, ...] | None) -> None:
        """From any thread. One that cannot be sent is for a process that has ended, which its thread will notice."""
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send(message)

    def receive(self) -> Any:
        """What the child says next; EOFError when it has ended, though another process may hold its end of the
        pipe."""
        while not self._pipe.poll(_LOOK_SECONDS):
            if not self._process.is_alive():
                raise EOFError
        return self._pipe.recv()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: signal.Signals) -> None:
        """To the process; SIGKILL also to what its handler started."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            if number == signal.SIGKILL:
                with contextlib.suppress(ProcessLookupError):  # it has no group yet
                    os.killpg(self.pid, number)
            os.kill(self.pid, number)

    def end(self) -> str:
        """Ask it to leave, and see that it does; says how it ended."""
        self.send(None)
        self._process.join(_JOIN_SECONDS)
        if self._process.is_alive():
            self.signal(signal.SIGKILL)
            self._process.join()
        status = self._process.exitcode
        self._pipe.close()
        if status is None:  # a handler has waited for all children of this process, or changed what SIGCHLD does
            return "has ended"
        self._process.close()
        return f"ended with status {status}" if status >= 0 else f"was ended by {_SIGNALS.get(-status, -status)}"


def _relog(record: bytes) -> None:
    """A log record of the handler's process, as if it were the worker's own."""
    try:
        made: logging.LogRecord = pickle.loads(record)
        logging.getLogger(made.name).handle(made)
    except Exception:
        log.exception("a log record of a handler's process cannot be shown")
