"""The inside of a process for handlers (pool.py is the outside): one handler at a time, in the main thread, so that
SIGTERM can interrupt it wherever it is in Python code.

The pipe carries tuples, pickled, because both ends are the same program. To the child: ("run", delivery, module, name)
and ("stop", reason), and None to leave. From it: ("progress", ...), ("checkpoint", ...) and ("log", record) while the
handler runs, then ("ended", completion, leaving). A thread listens, so that `ctx.cancelled()` knows of a stop while the
handler computes. When the pipe ends the worker is gone: the child ends, with all processes that its handler started.
"""

from __future__ import annotations

import importlib
import logging
import logging.handlers
import os
import pickle
import signal
import threading
from contextvars import Context
from multiprocessing.connection import Connection
from queue import SimpleQueue
from types import FrameType
from typing import Any

from perdure.core.errors import Cancelled
from perdure.core.messages import Completion, Delivery
from perdure.sdk.logs import TaskLogFilter
from perdure.sdk.task import REGISTRY, Task
from perdure.worker.execute import Environment, Run, broken, run_plain
from perdure.worker.memory import resident
from perdure.worker.output import keep_output

NEWS_SECONDS = 0.05
"""From progress or a checkpoint until the worker has it. The listener brings it, so that a handler may report as often
as it likes."""

Order = tuple[Run, str, str]
"""With the module and the name of its task."""


def serve(
    connection: Connection, environment: bytes, log_level: int, max_tasks: int | None, max_memory: int | None
) -> None:
    """Run handlers until the worker says that this is enough, or one of the limits is reached."""
    os.setpgid(0, 0)  # one group with what handlers start: to be ended with it, and apart from Ctrl-C in a terminal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(connection.fileno(), False)  # a handler that calls `exec` ends the pipe
    child = Child(connection, pickle.loads(environment), max_tasks, max_memory)
    signal.signal(signal.SIGTERM, child.interrupt)
    keep_output()
    root = logging.getLogger()
    root.handlers[:] = [_ToWorker(child)]
    root.setLevel(log_level)
    child.serve()


class Child:
    """This process, as its worker's pool sees it."""

    def __init__(
        self, connection: Connection, environment: Environment, max_tasks: int | None, max_memory: int | None
    ) -> None:
        self._connection = connection
        self._environment = environment
        self._max_tasks = max_tasks
        self._max_memory = max_memory
        self._pid = os.getpid()
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._sending = threading.Lock()
        self._run: Run | None = None  #: from its arrival until it has ended
        self._inside = False  #: the handler has control
        self._late = False  #: SIGTERM came while a message was being written

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="perdure-pipe", daemon=True).start()
        done = 0
        while (order := self._orders.get()) is not None:
            completion = self._work(*order)
            self._run = None
            done += 1
            leaving = (self._max_tasks is not None and done >= self._max_tasks) or (
                self._max_memory is not None and resident() > self._max_memory
            )
            self.send(("ended", completion, leaving))

    def send(self, message: tuple[Any, ...]) -> None:
        with self._sending:
            self._connection.send(message)
        if self._late:
            self._late = False
            os.kill(self._pid, signal.SIGTERM)

    def interrupt(self, number: int, _: FrameType | None) -> None:
        """SIGTERM: to a handler that was asked to stop an exception, else the end that it always is."""
        run = self._run
        if run is not None and run.ctx.stop:
            if self._sending.locked():
                self._late = True  # half a message would be the end of the pipe
            elif self._inside:
                raise Cancelled(run.ctx.stop)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _work(self, run: Run, module: str, name: str) -> Completion | None:
        try:
            run.task = _load(module, name)
        except BaseException as error:  # noqa: BLE001 - importing runs the application's code
            return broken(run, "handler_not_loaded", f"the process cannot load {name!r} from {module}: {error!r}")
        try:
            self._inside = True
            return Context().run(run_plain, run)
        except Cancelled as late:  # SIGTERM between the handler's end and here
            return broken(run, "process_died", str(late))
        finally:
            self._inside = False

    # ---------------------------------------------------------------------------------------------------- the pipe
    def _listen(self) -> None:
        try:
            while True:
                if self._connection.poll(None if self._run is None else NEWS_SECONDS):
                    self._hear(self._connection.recv())
                elif (run := self._run) is not None:
                    self._tell(run)
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)

    def _hear(self, message: tuple[Any, ...] | None) -> None:
        match message:
            case ("run", Delivery() as delivery, str() as module, str() as name):
                self.send(("begun",))
                self._run = Run(delivery, None, _nothing, 0.0, self._environment)
                self._orders.put((self._run, module, name))
            case ("stop", str() as reason):
                if (run := self._run) is not None:
                    run.stop(reason)
            case _:
                self._orders.put(None)

    def _tell(self, run: Run) -> None:
        checkpoint, progress = run.ctx.pending_checkpoint, run.ctx.pending_progress
        if checkpoint is not run.sent_checkpoint:
            self.send(("checkpoint", checkpoint))
            run.sent_checkpoint = checkpoint
        if progress is not run.sent_progress:
            self.send(("progress", progress))
            run.sent_progress = progress


class _ToWorker(logging.handlers.QueueHandler):
    """Log records go to the worker, which writes them where it writes its own."""

    def __init__(self, child: Child) -> None:
        super().__init__(SimpleQueue())
        self.addFilter(TaskLogFilter())  # the worker cannot know whose record it is
        self._child = child

    def enqueue(self, record: logging.LogRecord) -> None:
        self._child.send(("log", pickle.dumps(record)))


def _nothing(_: Run) -> None:
    """What a handler gives is noticed by the listener."""


def _load(module: str, name: str) -> Task[..., Any]:
    """The task, loading what defines it; a main program was loaded when this process started."""
    if module != "__main__":
        importlib.import_module(module)
    if name not in REGISTRY:
        raise LookupError(f"no task of that name is defined there; {len(REGISTRY)} others are")
    return REGISTRY[name]
