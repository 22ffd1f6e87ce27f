"""An event loop on which whole processes run side by side, in virtual time and in an order that a seed decides.

Each simulated process is a Node. What asyncio promises inside a process is kept: callbacks that are ready run first in,
first out. Between processes nothing is promised, so after every callback the seed draws which process goes next. Time
moves a few microseconds with each callback, and when nothing is ready it jumps to the next timer. There is no selector
and there are no threads, so nothing from outside can change what happens.

A callback belongs to the node in whose context it was scheduled; that is how asyncio carries contexts anyway. A node
that is dead never runs again: its tasks stop at the await where they were, and are kept so that the garbage collector
does not run their `finally`. A node that is frozen goes on later, with all that came meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from random import Random
from struct import Struct
from typing import Any

STEP = 5e-6
"""Virtual seconds that a callback takes."""
START = 1_000.0
"""What the clock of a loop shows at first."""

_numbers = itertools.count(1)
_trace = Struct("<Hd").pack


class SimFuture(asyncio.Future[Any]):
    """Hashed by a number, so that a set of futures has the same order in every run."""

    def __init__(self, *, loop: SimLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(loop.numbers)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimTask(asyncio.Task[Any]):
    """See SimFuture."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: SimLoop, **options: Any) -> None:
        self._number = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class Node:
    """A simulated process (or a thread of one)."""

    def __init__(self, loop: SimLoop, name: str, number: int) -> None:
        self.loop = loop
        self.name = name
        self.number = number
        self.queue: deque[events.Handle] = deque()
        self.alive = True
        self.frozen = False
        self.listed = False  #: among those that the loop draws from
        self.doom: int | None = None  #: callbacks until it dies
        self.on_death: Callable[[Node], None] | None = None
        self.context = copy_context()
        self.context.run(NODE.set, self)

    def __repr__(self) -> str:
        return f"<node {self.name}>"

    def spawn(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> SimTask:
        """Run a coroutine as a task of this node."""
        return self.loop.create_task(work, name=name, context=self.context.copy())

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        self.loop.list_ready(self)

    def kill(self) -> None:
        """All its tasks stop dead, here and now."""
        self.alive = False
        self.queue.clear()
        self.loop.killed(self)


NODE: ContextVar[Node] = ContextVar("node")


class Stuck(Exception):
    """Nothing is ready and no timer is set."""


class SimLoop(asyncio.BaseEventLoop):
    """`source` draws the order of nodes; with `shuffle` sometimes also that of callbacks inside a node, which asyncio
    forbids but nothing should depend on."""

    def __init__(self, source: Random, *, shuffle: bool = False) -> None:
        super().__init__()
        self.now = START
        self.steps = 0
        self.numbers = itertools.count(1)
        self.faults: list[tuple[str, BaseException | None]] = []  #: exceptions that nobody caught
        self.trace = hashlib.blake2b(digest_size=16)
        self._source = source
        self._shuffle = shuffle
        self._sequence = itertools.count()
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._ready_nodes: list[Node] = []
        self._nodes: list[Node] = []
        self._tasks: list[SimTask] = []
        self._prune_at = 1_000
        self.over = False  #: nothing runs any more
        self.root = self.node("root")

    # ----------------------------------------------------------------------------------------------------------- nodes
    def node(self, name: str) -> Node:
        node = Node(self, name, len(self._nodes))
        self._nodes.append(node)
        return node

    def list_ready(self, node: Node) -> None:
        if node.queue and node.alive and not node.frozen and not node.listed:
            node.listed = True
            self._ready_nodes.append(node)

    def killed(self, node: Node) -> None:
        if node.on_death is not None:
            node.on_death(node)

    # ------------------------------------------------------------------------------------- what asyncio asks of a loop
    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> SimFuture:
        return SimFuture(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> SimTask:  # type: ignore[override]
        task = SimTask(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._prune_at = max(1_000, 2 * len(self._tasks))
        return task

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        if not self.over:
            self._append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> events.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        timer = events.TimerHandle(when, callback, args, self, context)
        if not self.over:
            heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """It is skipped when its time comes."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.over:
            self.faults.append((str(context.get("message")), context.get("exception")))

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        raise AssertionError(f"a thread is asked for: {func}")

    # --------------------------------------------------------------------------------------------------------- running
    def _append(self, handle: events.Handle) -> None:
        node: Node = handle._context.get(NODE, self.root)  # type: ignore[attr-defined]
        if node.alive:
            node.queue.append(handle)
            if not node.listed and not node.frozen:
                node.listed = True
                self._ready_nodes.append(node)

    def run(self, until: Callable[[], bool]) -> None:
        """Run callbacks, until the condition holds after one of them."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while not until():
                self._run_timers()
                while not self._ready_nodes:
                    self._jump()
                self._run_one()
        finally:
            events._set_running_loop(before)

    def _jump(self) -> None:
        timers = self._timers
        while timers and (timers[0][2]._cancelled or not self._alive(timers[0][2])):  # type: ignore[attr-defined]
            heappop(timers)
        if not timers:
            raise Stuck
        self.now = max(self.now, timers[0][0])
        self._run_timers()

    def _alive(self, handle: events.Handle) -> bool:
        return handle._context.get(NODE, self.root).alive  # type: ignore[attr-defined,no-any-return]

    def _run_timers(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            if not timer._cancelled:  # type: ignore[attr-defined]
                self._append(timer)

    def _run_one(self) -> None:
        nodes = self._ready_nodes
        at = int(self._source.random() * len(nodes)) if len(nodes) > 1 else 0
        node = nodes[at]
        queue = node.queue
        if not queue or node.frozen or not node.alive:
            node.listed = False
            nodes[at] = nodes[-1]
            nodes.pop()
            return
        if self._shuffle and len(queue) > 1 and self._source.random() < 0.1:
            queue.rotate(-1)
        handle = queue.popleft()
        if handle._cancelled:  # type: ignore[attr-defined]
            return
        self.steps += 1
        self.now += STEP
        self.trace.update(_trace(node.number, self.now))
        if node.doom is not None:
            node.doom -= 1
            if node.doom < 0:
                node.kill()
                return
        handle._run()

    def finish(self) -> None:
        """Let go of everything; what still waits is closed without running anything else."""
        self.over = True
        self._timers.clear()
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task)
            self._tasks.clear()
        finally:
            sys.unraisablehook = complain
        self.close()


def _close(task: SimTask) -> None:
    coroutine: Any = task.get_coro()
    for _ in range(20):
        try:
            coroutine.close()
        except RuntimeError:  # it awaited something in a `finally`
            continue
        except BaseException:  # noqa: BLE001 - nothing that it does now counts
            return
        return
