"""What are threads of a worker in reality: strands, which run on one of its nodes until they wait, and then let others
run. A strand is a greenlet, so that code which blocks can stand still in the middle while the loop goes on."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from perdure.sdk.workflow_errors import Dropped
from perdure.worker.execute import Run, run_plain
from perdure.worker.threads import Ended, Threads
from tests.sim.loop import NODE, Node

if TYPE_CHECKING:
    from tests.sim.processes import WorkerProcess
    from tests.sim.world import World


class Strand(greenlet):
    """Runs `work` on a node. All are kept, because one that is collected unwinds."""

    def __init__(self, node: Node, work: Callable[[], object]) -> None:
        super().__init__(lambda _: work())
        self._node = node

    def wake(self, value: object = None) -> None:
        """Go on, with what it waited for."""
        self._node.loop.call_soon(self.switch, value, context=self._node.context)

    def sleep(self, seconds: float) -> None:
        self._node.loop.call_later(seconds, self.switch, None, context=self._node.context)
        self.wait()

    def wait(self) -> Any:
        """Until `wake`."""
        return self.parent.switch()

    def end(self) -> None:
        """Unwind it without effect."""
        for _ in range(20):
            with contextlib.suppress(BaseException):
                if self.dead or not self:
                    return
                self.throw(Dropped())


def strand() -> Strand:
    """The one that runs here."""
    current = getcurrent()
    assert isinstance(current, Strand)
    return current


class SimQueue:
    """SimpleQueue, for a strand that takes and anybody that gives."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: Strand | None = None

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.wake()

    def get(self) -> Any:
        while not self._items:
            self._waiting = strand()
            self._waiting.wait()
        return self._items.popleft()


class SimThreads(Threads):
    """Takes the place of Threads. A plain handler runs when its time is over, at one blow."""

    def __init__(self, ended: Ended, process: WorkerProcess) -> None:
        super().__init__(ended)
        self._strands = process.world.strands
        self._thread = process.thread
        self._main = process.node
        self._told: deque[Callable[[], None]] = deque()

    def start(self, run: Run) -> None:
        spec = json.loads(run.delivery.payload[0].data)
        self._thread.loop.call_later(sum(spec["sleeps"]), self._run, run, context=self._thread.context)

    def _run(self, run: Run) -> None:
        self.tell(partial(self._ended, run, run_plain(run)))

    def call(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        new = Strand(self._thread, lambda: self.tell(partial(done, work())))
        self._strands.append(new)
        new.wake()

    def ask(self, question: Callable[[Callable[[Any], None]], None]) -> Any:
        asking = strand()
        self.tell(partial(question, asking.wake))
        return asking.wait()

    def tell(self, news: Callable[[], None]) -> None:
        self._told.append(news)
        self._main.loop.call_soon(lambda: self._told.popleft()(), context=self._main.context)


class SimActivations:
    """Takes the place of Activations in worker/turns.py. What is given is done in that order, one after the other."""

    world: World

    def __init__(self, watchdog: object) -> None:
        self._main = NODE.get()
        self._thread = self.world.process_of(self._main).thread  # type: ignore[attr-defined]
        self._given: deque[Any] = deque()
        self._done: deque[Any] = deque()

    def add(self, activation: Any) -> None:
        self._given.append(activation)
        self._main.loop.call_soon(self._work, context=self._thread.context)

    def _work(self) -> None:
        activation = self._given.popleft()
        activation.work()
        self._done.append(activation)
        self._main.loop.call_soon(lambda: self._done.popleft().done(None), context=self._main.context)

    def close(self) -> None:
        """There is no thread to end."""
