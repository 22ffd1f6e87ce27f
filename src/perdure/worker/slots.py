"""The slots of a worker: what a poll may ask for, and which of the tasks that it brings may start.

A task takes as many slots as it weighs, and a handler that runs in a process also one of the worker's processes. What
the next task weighs is known only when it is there. So a poll asks for as many tasks as would fit if they were like
those that came last; one that does not fit is handed back, to the front of its queue and without spending an attempt,
and is asked for again when it would fit:

- while it waits for slots no other task is asked for, else light tasks would starve a heavy one;
- while it waits for a process the other queues are polled, because slots are free.

Nothing is kept in reserve: a task that cannot start here is for another worker.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.core.messages import Delivery
from perdure.sdk.task import Task

Tasks = dict[str, Task[..., Any]]


@dataclass(frozen=True)
class Ask:
    """What a poll may ask for, and the slots that are set aside for the answer."""

    poller: int
    queues: Sequence[str]
    capacity: int
    slots: int
    at: float = field(default_factory=time.monotonic)  #: when, on the monotonic clock


class Slots:
    """Of `total` slots and `processes` processes, for polls of at most `batch` tasks by pollers with the numbers 0 and
    1. To be used on one event loop."""

    def __init__(self, tasks: Tasks, queues: Sequence[str], total: int, processes: int, batch: int) -> None:
        self._tasks = tasks
        self._queues = queues
        self.total = self.free = total
        self._processes = processes
        self._batch = min(batch, total)
        self._share = -(-total // processes)  #: of the slots, for each process
        heaviest = max(map(self._estimate, tasks.values()), default=1)
        self._costs: dict[str, tuple[int, bool]] = {}  #: weight of the tasks that came, and if in a process
        self._heaviest = [heaviest, heaviest]  #: of what each poller was brought last
        self._heavy: Delivery | None = None  #: was handed back, and nothing else is asked for until it fits
        self._crowded: set[str] = set()  #: queues of which a task was handed back because no process was free

    def ask(self, poller: int) -> Ask | None:
        """What this poller may ask for now; None while it has to wait for slots. The first takes any that are free,
        the other waits until they are enough for a whole batch of light tasks."""
        if self._heavy is not None and self.weight(self._heavy) > self.free:
            return None
        self._heavy = None
        queues, least = self._queues, (1 if poller == 0 else self._batch)
        if self._crowded:
            if poller == 0:
                return None
            queues, least = [name for name in queues if name not in self._crowded], 1
        if not queues or self.free < least:
            return None
        heaviest = self._heaviest[poller]
        capacity = min(max(self.free // heaviest, 1), self._batch)
        slots = min(capacity * heaviest, self.free)
        self.free -= slots
        return Ask(poller, queues, capacity, slots)

    def admit(self, ask: Ask, deliveries: list[Delivery]) -> list[bool]:
        """The answer to a poll: which of these tasks may start, their slots being taken from here on."""
        self.free += ask.slots
        if deliveries:
            types = {item.type for item in deliveries if item.turn is None}
            self._heaviest[ask.poller] = max((self._estimate(self._tasks.get(name)) for name in types), default=1)
        return [self._take(item) for item in deliveries]

    def give_back(self, item: Delivery) -> None:
        """A task that was admitted has ended."""
        weight, in_process = self._cost(item)
        self.free += weight
        if in_process:
            self._processes += 1
            self._crowded.clear()

    def weight(self, item: Delivery) -> int:
        """The slots that a task takes."""
        return self._cost(item)[0]

    def _take(self, item: Delivery) -> bool:
        weight, in_process = self._cost(item)
        if self._heavy is not None:
            return False
        if weight > self.free:
            self._heavy = item
            return False
        if in_process and not self._processes:
            self._crowded.add(item.queue)
            return False
        self.free -= weight
        self._processes -= in_process
        return True

    def _cost(self, item: Delivery) -> tuple[int, bool]:
        if item.turn is not None:
            return 1, False
        known = self._costs.get(item.type)
        if known is not None:
            return known
        task = self._tasks.get(item.type)
        if task is None:
            return 1, False
        return self._costs.setdefault(item.type, (min(task.weight, self.total), task.process))

    def _estimate(self, task: Task[..., Any] | None) -> int:
        """The slots that a run takes, or its share of them when processes are what it lacks first."""
        if task is None:
            return 1
        return min(max(task.weight, self._share if task.process else 1), self.total)
