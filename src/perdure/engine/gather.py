"""Where commands wait for the next batch: one queue a class, served in order of the classes.

While a batch commits the next one gathers. A request may be of many commands; it is split over batches and answered
once, when its last command is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from perdure.core import commands as c
from perdure.core.errors import Unavailable

MAX_ROWS = 400  #: commands of a batch
MAX_BYTES = 4 * 1024 * 1024  #: payload bytes of a batch
MAX_WAITING = 20_000  #: commands that wait in one class before callers are told to come back
MAX_PASSED_OVER = 20  #: batches that bulk work waits for while others fill them
MAX_DEFERRALS = 20  #: then a command runs alone and waits for its row's lock

_FIRST, _CANCEL, _CHORE, _ENQUEUE, _BULK = range(5)
_CLASS: dict[type, int] = {
    c.Heartbeat: _FIRST,
    c.Complete: _FIRST,
    c.OpenSession: _FIRST,
    c.CloseSession: _FIRST,
    c.Cancel: _CANCEL,
    c.Retry: _CANCEL,
    c.Ring: _CHORE,
    c.Reap: _CHORE,
    c.Enqueue: _ENQUEUE,
    c.Trim: _BULK,
}
_NEVER_REFUSED = (_FIRST, _CHORE)


class Request:
    """Commands of one caller and the future that answers them all at once."""

    __slots__ = ("future", "left", "outcomes")

    def __init__(self, count: int, future: asyncio.Future[list[c.Outcome]]) -> None:
        self.outcomes: list[c.Outcome | None] = [None] * count
        self.left = count
        self.future = future

    def answer(self, index: int, outcome: c.Outcome) -> None:
        self.outcomes[index] = outcome
        self.left -= 1
        if self.left == 0 and not self.future.done():
            self.future.set_result(self.outcomes)  # type: ignore[arg-type]  # all are set now


class Item:
    """One command of a request."""

    __slots__ = ("command", "deferrals", "index", "request")

    def __init__(self, command: c.Command, request: Request, index: int) -> None:
        self.command = command
        self.request = request
        self.index = index
        self.deferrals = 0

    def answer(self, outcome: c.Outcome) -> None:
        self.request.answer(self.index, outcome)


class Gatherer:
    """The queues. `put` refuses with Unavailable when a class is full; heartbeats and completions never are."""

    def __init__(self) -> None:
        self._queues: tuple[deque[Item], ...] = tuple(deque() for _ in range(5))
        self._passed_over = 0  #: batches that bulk work has waited for

    def __bool__(self) -> bool:
        return any(self._queues)

    def put(self, commands: Sequence[c.Command], future: asyncio.Future[list[c.Outcome]]) -> None:
        for command in commands:
            kind = _CLASS[type(command)]
            if kind not in _NEVER_REFUSED and len(self._queues[kind]) >= MAX_WAITING:
                raise Unavailable(f"{MAX_WAITING} commands are waiting", retry_after=1.0)
        request = Request(len(commands), future)
        for index, command in enumerate(commands):
            self._queues[_CLASS[type(command)]].append(Item(command, request, index))

    def put_back(self, items: Sequence[Item]) -> None:
        """Items of a batch that was not committed: to the front, in their old order."""
        for item in reversed(items):
            self._queues[_CLASS[type(item.command)]].appendleft(item)

    def take(self) -> list[Item]:
        """The next batch. Chores take no room of the others: that is their reserved share."""
        if (alone := self._deferred_for_long()) is not None:
            return [alone]
        taken: list[Item] = []
        room, size = MAX_ROWS, 0
        for kind, queue in enumerate(self._queues):
            if kind == _CHORE:
                taken.extend(queue)
                queue.clear()
            elif kind == _BULK:
                self._passed_over += 1
                if queue and (not taken or self._passed_over > MAX_PASSED_OVER):
                    taken.append(queue.popleft())
                    self._passed_over = 0
            else:
                while queue and room and size < MAX_BYTES:
                    item = queue.popleft()
                    taken.append(item)
                    room -= 1
                    size += getattr(item.command, "size", 0)
        return taken

    def _deferred_for_long(self) -> Item | None:
        for queue in self._queues:
            if queue and queue[0].deferrals >= MAX_DEFERRALS:
                return queue.popleft()
        return None

    def fail(self, error: Exception) -> None:
        """Shutting down: nobody waits for ever."""
        for queue in self._queues:
            for item in queue:
                if not item.request.future.done():
                    item.request.future.set_exception(error)
            queue.clear()
