"""Which enqueues of a batch make tasks: the others name a task that is there, by an id of the caller's or by a key."""

from __future__ import annotations

from typing import Any

from perdure.core import commands as c
from perdure.core import keys
from perdure.core.errors import Conflict, PerdureError
from perdure.core.model import Key
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName

Enqueues = list[tuple[Item, Any]]


class Intake:
    """Asks the database. `answers` and `deferred` are what was not let in."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.answers: list[tuple[Item, c.Outcome]] = []
        self.deferred: list[Item] = []
        self.displacing: dict[Item, Key] = {}  #: those that take the place of the task which holds their key

    async def new(self, enqueues: Enqueues) -> Enqueues:
        """Those whose id is new. The others were sent before, and are answered like the first time."""
        ids = {command.task_id for _, command in enqueues if command.minted}
        known: dict[bytes, str] = {i: task.namespace for i, task in (await self._rows.trace(list(ids))).items()}
        new: Enqueues = []
        for item, command in enqueues:
            if not command.minted or command.task_id not in known:
                new.append((item, command))
                known[command.task_id] = command.draft.namespace
            elif known[command.task_id] == command.draft.namespace:
                self.answers.append((item, c.Enqueued(command.task_id, False)))
            else:
                self.answers.append((item, Conflict("this id cannot be used", field="minted")))
        return new

    async def free(self, enqueues: Enqueues) -> Enqueues:
        """Those without a key, or whose key is theirs from here on."""
        go_on: Enqueues = []
        first: dict[KeyName, tuple[Item, c.Enqueue]] = {}
        repeats: Enqueues = []
        for item, command in enqueues:
            if command.key is None:
                go_on.append((item, command))
            elif first.setdefault(keys.name(command), (item, command))[0] is not item:
                repeats.append((item, command))
        if not first:
            return go_on
        now = self._rows.now
        reserved = await self._rows.reserve_keys([keys.reservation(command, now) for _, command in first.values()])
        lost = [name for name in first if name not in reserved]
        holders = await self._holders(lost, first) if lost else {}
        for name, (item, command) in first.items():
            if name in reserved or (name in holders and holders[name] is None):
                go_on.append((item, command))
            elif (holder := holders.get(name)) is not None:
                if name[2] == keys.DEBOUNCE and holder.task_id != command.task_id:
                    self.displacing[item] = holder
                else:
                    self._answer(item, command, holder)
            else:
                self.deferred.append(item)
        for item, command in repeats:
            name = keys.name(command)
            if first[name][0] in self.deferred or name[2] == keys.DEBOUNCE:
                self.deferred.append(item)
            else:
                self._answer(item, command, holders.get(name) or keys.reservation(first[name][1], now))
        return go_on

    async def _holders(
        self, lost: list[KeyName], first: dict[KeyName, tuple[Item, c.Enqueue]]
    ) -> dict[KeyName, Key | None]:
        """Who holds the keys that were lost. None: the key had expired and its task is closed, so it was taken over.
        Absent: it was freed meanwhile, so the command tries again."""
        now = self._rows.now
        found = await self._rows.read_keys(lost)
        expired = {name: key for name, key in found.items() if keys.has_expired(key, now)}
        holders: dict[KeyName, Key | None] = dict(found)
        if expired:
            traces = await self._rows.trace([key.task_id for key in expired.values()])
            for name, old in sorted(expired.items()):  # every batch in the same order: no deadlock
                if keys.may_pass_on(old, traces.get(old.task_id)):
                    if await self._rows.replace_key(old, keys.reservation(first[name][1], now)):
                        holders[name] = None
                    else:
                        del holders[name]
        return holders

    def _answer(self, item: Item, command: c.Enqueue, holder: Key) -> None:
        try:
            self.answers.append((item, keys.answer(command, holder)))
        except PerdureError as error:
            self.answers.append((item, error))
