"""When a worker process should be replaced by a fresh one: after so many tasks, with too much memory, or when handlers
that do not stop hold too many of its slots.

A plain handler in a thread cannot be ended from outside. One that goes on though its time was over, its task was
canceled or its lease was lost keeps its slot, until half of them are lost that way: then the process goes, and such
handlers with it.
"""

from __future__ import annotations

import time
from collections import Counter

from perdure.core.errors import InvalidArgument
from perdure.worker.execute import Run
from perdure.worker.memory import resident

STUCK_SECONDS = 30.0
"""From the request to stop until a handler that goes on counts as stuck. A server gives it as long."""
_MEGABYTE = 1 << 20


class Wear:
    """What a process has been through, against its limits. InvalidArgument for limits that are none, such as less
    memory than it has now."""

    def __init__(self, max_tasks: int | None, max_memory: int | None) -> None:
        if max_tasks is not None and max_tasks < 1:
            raise InvalidArgument(f"max_tasks is {max_tasks}", field="max_tasks", limit="1 and more", kind="int")
        if max_memory is not None and max_memory <= (now := resident()):
            text = f"max_memory is {max_memory}, and the process has {now} from the start"
            raise InvalidArgument(text, field="max_memory", limit=f"more than {now} bytes", kind="int")
        self._max_tasks = max_tasks
        self._max_memory = max_memory
        self._started = 0
        self._stopped: dict[Run, float] = {}

    def started(self) -> str:
        """A task was started. Why the process should go, if it should."""
        self._started += 1
        return f"it has run {self._started} tasks" if self._started == self._max_tasks else ""

    def stopped(self, run: Run) -> None:
        """Its handler was told to stop."""
        self._stopped.setdefault(run, time.monotonic())

    def ended(self, run: Run) -> None:
        self._stopped.pop(run, None)

    def stuck(self) -> list[Run]:
        """The handlers that were told to stop long ago."""
        since = time.monotonic() - STUCK_SECONDS
        return [run for run, at in self._stopped.items() if at <= since]

    def worn(self, stuck_slots: int, slots: int) -> str:
        """To be asked now and then: why the process should go, if it should."""
        if self._max_memory is not None and (now := resident()) > self._max_memory:
            return f"it has {now // _MEGABYTE} MB of memory"
        if stuck_slots * 2 >= slots:
            names = Counter(run.delivery.type for run in self.stuck())
            which = ", ".join(f"{count} of {name}" for name, count in names.most_common(5))
            return f"{stuck_slots} of its {slots} slots are held by handlers that do not stop ({which})"
        return ""
