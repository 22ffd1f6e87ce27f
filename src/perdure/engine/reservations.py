"""Keys that a batch takes behind the locks, because a command that does not get its rows comes again and must not meet
its own key then: request ids of messages, and workflow ids of child runs.

    recall     what request ids stand for that were used while runs were open which have closed since
    reserve    those of runs that are open; who has those that were lost
    release    what no command used after all, because its run closed in this very batch, is free again
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from perdure.core import commands as c
from perdure.core import decide, runs
from perdure.core import turn_commands as t
from perdure.core.model import SECOND, Key
from perdure.core.run import Run, UpdateRequest
from perdure.core.states import is_closed
from perdure.core.turn_effects import KEY_LIFE, key_of
from perdure.engine.gather import Item
from perdure.engine.ledger import Ledger
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName, Store

REQUEST_LIFE = 86_400 * SECOND  #: microseconds that a request id is remembered


def update_key(namespace: str, run_id: bytes, update_id: str) -> KeyName:
    """Stands for the row that holds the answer to an update."""
    return (namespace, "", "update", f"{run_id.hex()}/{update_id}")


class Reservations:
    """Those of one batch. `targets` are the runs that commands with request ids are about; `store` is for reading
    beside the batch what does not change any more."""

    def __init__(self, ledger: Ledger, targets: Mapping[Item, bytes], store: Store) -> None:
        self.taken: set[bytes] = set()  #: child runs that could not get their workflow id
        self._ledger = ledger
        self._targets = targets
        self._store = store
        self._reuse: dict[bytes, str] = {}  #: by child run: which last runs of its workflow id it may follow
        self._names: dict[Item, KeyName] = {}  #: of the request ids of commands
        self._requests: dict[KeyName, Key] = {}  #: request ids of this batch
        self._unused: dict[KeyName, Key] = {}  #: those that were free, as long as no command has used them
        self._told: dict[KeyName, Key] = {}  #: request ids that were used before

    async def recall(self, rows: Rows, closed: Sequence[tuple[Item, c.Tell]]) -> None:
        """For messages to runs that have closed: a run takes no more of them, but still answers those that it had."""
        found = {self._targets[item] for item, _ in closed}
        past = await self._store.run_rows(sorted(found)) if found else {}
        for item, command in closed:
            run = past.get(self._targets[item])
            if run is not None and (name := self._request(item, command, run)) is not None:
                self._names[item] = name
        names = sorted({self._names[item] for item, _ in closed if item in self._names})
        if names:
            self._told.update(await rows.read_keys(names))

    async def reserve(self, rows: Rows, named: list[tuple[Item, Any]], starting: Container[bytes | None]) -> None:
        """For commands whose rows are locked. `starting` are runs that this batch makes."""
        now = rows.now
        wanted: dict[KeyName, Key] = {}
        for item, command in named:
            if isinstance(command, (c.Tell, c.Enqueue)):
                self._want(item, command, wanted, now)
            elif isinstance(command, c.Append) and self._holds(command):
                for child in command.commands:
                    if isinstance(child, t.StartChildWorkflow):
                        name = key_of(self._ledger.rows[command.lease.task_id].namespace, child.workflow_id)
                        key = wanted.setdefault(name, Key(*name, child.task_id, b"", now + KEY_LIFE))
                        self._reuse[child.task_id] = child.id_reuse
                        if key.task_id != child.task_id:  # another child of this batch has it
                            self.taken.add(child.task_id)
        if not wanted:
            return
        reserved = await rows.reserve_keys([wanted[name] for name in sorted(wanted)])
        self._unused = {name: key for name, key in self._requests.items() if name in reserved}
        lost = [name for name in sorted(wanted) if name not in reserved]
        if lost:
            await self._look_at(rows, lost, wanted, starting)

    def _want(self, item: Item, command: c.Tell | c.Enqueue, wanted: dict[KeyName, Key], now: int) -> None:
        """The request id of a command about a run that is open, or that this batch starts."""
        run = self._ledger.runs.get(self._targets[item])
        if (name := self._request(item, command, run)) is None:
            return
        answer = self._targets[item]
        if (update := _update_of(command)) is not None:
            answer = update.task_id
        self._names[item] = name
        self._requests[name] = wanted.setdefault(name, Key(*name, answer, b"", now + REQUEST_LIFE))

    async def _look_at(
        self, rows: Rows, lost: list[KeyName], wanted: dict[KeyName, Key], starting: Container[bytes | None]
    ) -> None:
        """Keys that others hold: a workflow id whose last run has closed can be had."""
        holders = await rows.read_keys(lost)
        last = [key.task_id for name, key in holders.items() if name[2] == "workflow"]
        traces = await rows.trace(last) if last else {}
        for name in lost:
            holder = holders.get(name)
            if name[2] != "workflow":
                if holder is not None:
                    self._told[name] = holder
                continue
            child = wanted[name].task_id
            old = None if holder is None else traces.get(holder.task_id)
            taken = holder is None or holder.task_id in starting or (old is not None and not is_closed(old.state))
            if holder is not None and holder.task_id != child and not taken:
                taken = not (runs.may_follow(old, self._reuse[child]) and await rows.replace_key(holder, wanted[name]))
            if taken:
                self.taken.add(child)

    def known(self, item: Item) -> Key | None:
        """What the request id of a command stands for if it was used before."""
        name = self._names.get(item)
        return None if name is None else self._told.get(name)

    def asked_before(self, item: Item) -> Key | None:
        """The same; from now on, in this same batch too, it is used."""
        name = self._names.get(item)
        if name is None:
            return None
        key = self._told.get(name)
        if key is None:
            self._told[name] = self._requests[name]
            self._unused.pop(name, None)
        return key

    async def release(self, rows: Rows) -> None:
        """Whoever sends a refused request again gets the same answer, and not that of a request which never was."""
        if self._unused:
            await rows.free_keys([self._unused[name] for name in sorted(self._unused)])

    def _request(self, item: Item, command: c.Tell | c.Enqueue, run: Run | None) -> KeyName | None:
        """That of a signal or a cancel request holds for all runs of a chain (SIG-03), that of an update for one."""
        update, target = _update_of(command), self._targets[item]
        if isinstance(command, c.Enqueue):
            if command.start is not None and command.start.id_conflict == "terminate_existing":
                target = command.task_id or target  # the run that takes the place of the open one
            if update is not None:
                return update_key(command.draft.namespace, target, update.update_id)
            name = (command.draft.namespace, "", "start", f"{target.hex()}/{command.digest.decode()}")
            return name if command.digest else None
        if run is None or run.workflow_id != command.workflow_id:  # it will be refused
            return None
        if update is not None:
            return update_key(command.namespace, target, update.update_id)
        if not command.request_id:
            return None
        return (command.namespace, "", "request", f"{run.first_run_id.hex()}/{command.request_id}")

    def _holds(self, command: c.Append) -> bool:
        task = self._ledger.rows.get(command.lease.task_id)
        return task is not None and decide.holds(task, command)


def _update_of(command: c.Tell | c.Enqueue) -> UpdateRequest | None:
    """The update that a command brings."""
    if isinstance(command, c.Tell):
        return command.message if isinstance(command.message, UpdateRequest) else None
    return None if command.start is None else command.start.update
