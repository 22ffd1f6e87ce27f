"""Where commands wait for the next batch: one queue a class, served in order of the classes.

While a batch commits the next one gathers. A request may be of many commands; it is split over batches and answered
once, when its last command is. No class can shut out a later one: each that waits has a share of every batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from perdure.core import commands as c
from perdure.core.errors import Unavailable

MAX_ROWS = 400  #: commands of a batch
MAX_BYTES = 4 * 1024 * 1024  #: payload bytes of a batch
SHARE = MAX_ROWS // 8  #: commands of a batch that a waiting class gets at least
MAX_WAITING = 20_000  #: commands that wait in one class before callers are told to come back
MAX_WAITING_BYTES = 256 * 1024 * 1024  #: the same for payload bytes in all classes
MAX_PASSED_OVER = 4  #: batches that bulk work waits for while others fill them; more, and retention falls behind them

_FIRST, _CANCEL, _CHORE, _ENQUEUE, _BULK = range(5)
_CLASS: dict[type, int] = {
    c.Heartbeat: _FIRST,
    c.WriteStream: _FIRST,
    c.Complete: _FIRST,
    c.Append: _FIRST,
    c.OpenSession: _FIRST,
    c.CloseSession: _FIRST,
    c.Cancel: _CANCEL,
    c.Retry: _CANCEL,
    c.NoteBulk: _CANCEL,
    c.Tell: _CANCEL,
    c.Terminate: _CANCEL,
    c.Pause: _CANCEL,
    c.Reset: _CANCEL,
    c.PutSchedule: _CANCEL,
    c.PauseSchedule: _CANCEL,
    c.UpdateSchedule: _CANCEL,
    c.TriggerSchedule: _CANCEL,
    c.BackfillSchedule: _CANCEL,
    c.DeleteSchedule: _CANCEL,
    c.PutLimit: _CANCEL,
    c.PauseLimit: _CANCEL,
    c.DeleteLimit: _CANCEL,
    c.SwitchBreaker: _CANCEL,
    c.Ring: _CHORE,
    c.Reap: _CHORE,
    c.Pull: _CHORE,
    c.Enqueue: _ENQUEUE,
    c.Trim: _BULK,
    c.Erase: _BULK,
    c.TrimOutbox: _BULK,
}
_NEVER_REFUSED = (_FIRST, _CHORE)
_SIZED = (_FIRST, _CANCEL, _ENQUEUE)


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
    """One command of a request. `deferrals` counts the batches that did not get its row."""

    __slots__ = ("command", "deferrals", "index", "request", "size")

    def __init__(self, command: c.Command, request: Request, index: int) -> None:
        self.command = command
        self.request = request
        self.index = index
        self.deferrals = 0
        self.size: int = getattr(command, "size", 0)

    def answer(self, outcome: c.Outcome) -> None:
        self.request.answer(self.index, outcome)


class Gatherer:
    """The queues. `put` refuses with Unavailable when too much waits; heartbeats and completions never are refused."""

    def __init__(self) -> None:
        self._queues: tuple[deque[Item], ...] = tuple(deque() for _ in range(5))
        self._bytes = 0
        self._passed_over = 0  #: batches that bulk work has waited for

    def __bool__(self) -> bool:
        return any(self._queues)

    def __len__(self) -> int:
        """Commands that wait."""
        return sum(map(len, self._queues))

    def put(self, commands: Sequence[c.Command], future: asyncio.Future[list[c.Outcome]]) -> None:
        request = Request(len(commands), future)
        items = [Item(command, request, index) for index, command in enumerate(commands)]
        for kind in {_CLASS[type(command)] for command in commands} - set(_NEVER_REFUSED):
            if len(self._queues[kind]) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES:
                raise Unavailable("too many commands are waiting", retry_after=1.0)
        for item in items:
            self._queues[_CLASS[type(item.command)]].append(item)
            self._bytes += item.size

    def put_back(self, items: Sequence[Item]) -> None:
        """Items of a batch that did not get their rows: to the front, in their old order."""
        for item in reversed(items):
            self._queues[_CLASS[type(item.command)]].appendleft(item)
            self._bytes += item.size

    def take(self) -> list[Item]:
        """The next batch. Chores take no room of the others: that is their reserved share. Commands whose caller has
        given up are dropped."""
        taken: list[Item] = list(self._queues[_CHORE])
        self._queues[_CHORE].clear()
        room, size = MAX_ROWS, 0
        for position, kind in enumerate(_SIZED):
            queue = self._queues[kind]
            most = room - SHARE * sum(1 for later in _SIZED[position + 1 :] if self._queues[later])
            while queue and most > 0 and size < MAX_BYTES * (position + 1) // len(_SIZED):
                item = queue.popleft()
                self._bytes -= item.size
                if item.request.future.done():
                    continue
                taken.append(item)
                most -= 1
                room -= 1
                size += item.size
        self._take_bulk(taken)
        return taken

    def _take_bulk(self, taken: list[Item]) -> None:
        queue = self._queues[_BULK]
        if not queue:
            self._passed_over = 0
        elif taken and self._passed_over < MAX_PASSED_OVER:
            self._passed_over += 1
        else:
            taken.append(queue.popleft())
            self._passed_over = 0

    def fail(self, error: Exception) -> None:
        """Shutting down: nobody waits for ever."""
        for queue in self._queues:
            for item in queue:
                if not item.request.future.done():
                    item.request.future.set_exception(error)
            queue.clear()
        self._bytes = 0
