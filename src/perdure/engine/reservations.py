"""Keys that a batch takes behind the locks, because a command that does not get its rows comes again and must not meet
its own key then: request ids of messages, and workflow ids of child runs."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from perdure.core import commands as c
from perdure.core import decide, runs
from perdure.core import turn_commands as t
from perdure.core.model import SECOND, Key
from perdure.core.run import UpdateRequest
from perdure.core.states import is_closed
from perdure.core.turn_effects import KEY_LIFE, key_of
from perdure.engine.gather import Item
from perdure.engine.ledger import Ledger
from perdure.store.base import Batch as Rows
from perdure.store.base import KeyName

REQUEST_LIFE = 86_400 * SECOND  #: microseconds that a request id is remembered


def update_key(namespace: str, run_id: bytes, update_id: str) -> KeyName:
    """Stands for the row that holds the answer to an update."""
    return (namespace, "", "update", f"{run_id.hex()}/{update_id}")


class Reservations:
    """Those of one batch. `targets` are the runs that commands with request ids are about."""

    def __init__(self, ledger: Ledger, targets: Mapping[Item, bytes]) -> None:
        self.taken: set[bytes] = set()  #: child runs that could not get their workflow id
        self._ledger = ledger
        self._targets = targets
        self._reuse: dict[bytes, str] = {}  #: by child run: which last runs of its workflow id it may follow
        self._requests: dict[KeyName, Key] = {}  #: request ids of this batch
        self._told: dict[KeyName, Key] = {}  #: request ids that were used before

    async def reserve(self, rows: Rows, named: list[tuple[Item, Any]], starting: Container[bytes | None]) -> None:
        """For commands whose rows are locked. `starting` are runs that this batch makes."""
        now = rows.now
        wanted: dict[KeyName, Key] = {}
        for item, command in named:
            if isinstance(command, (c.Tell, c.Enqueue)) and (name := self._request(item, command)) is not None:
                answer = self._targets[item]
                if isinstance(command, c.Tell) and isinstance(command.message, UpdateRequest):
                    answer = command.message.task_id
                self._requests[name] = wanted.setdefault(name, Key(*name, answer, b"", now + REQUEST_LIFE))
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
        lost = [name for name in sorted(wanted) if name not in reserved]
        if lost:
            await self._look_at(rows, lost, wanted, starting)

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

    def asked_before(self, item: Item, command: c.Tell | c.Enqueue) -> Key | None:
        """What the request id stands for if it was used before; from now on, in this same batch too, it is."""
        name = self._request(item, command)
        if name is None:
            return None
        key = self._told.get(name)
        if key is None:
            self._told[name] = self._requests[name]
        return key

    def _request(self, item: Item, command: c.Tell | c.Enqueue) -> KeyName | None:
        """That of a signal or a cancel request holds for all runs of a chain (SIG-03), that of an update for one."""
        run = self._ledger.runs.get(self._targets[item])
        if run is None:
            return None
        if isinstance(command, c.Enqueue):
            name = (command.draft.namespace, "", "start", f"{run.id.hex()}/{command.digest.decode()}")
            return name if command.digest else None
        if run.workflow_id != command.workflow_id:  # it will be refused
            return None
        if isinstance(command.message, UpdateRequest):
            return update_key(command.namespace, self._targets[item], command.message.update_id)
        if not command.request_id:
            return None
        return (command.namespace, "", "request", f"{run.first_run_id.hex()}/{command.request_id}")

    def _holds(self, command: c.Append) -> bool:
        task = self._ledger.rows.get(command.lease.task_id)
        return task is not None and decide.holds(task, command)
