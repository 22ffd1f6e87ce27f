"""What the circuit breakers of task types do in one batch.

    count   attempts that this batch ends: their limits are held, by skipping, and what is counted is written
    probes  of breakers that are not closed, those that still run are looked up; the rest of them may start
    flush   those that were handed out are noted

Where another batch holds a limit, the endings are left to a later batch of this server. A server that dies before that,
or a batch that is not committed, loses what was left over: a breaker opens a little later then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from perdure.core.breaker import Circuit, Ending, Probe, Stage, ending, free, judge, probe
from perdure.core.limit_rules import Limit, LimitName, Limits, limit_of, with_circuit
from perdure.core.model import Task
from perdure.core.states import State
from perdure.engine.ledger import Ledger
from perdure.store.base import Batch as Rows

log = logging.getLogger("perdure.engine")

MOST_LEFT = 1_000
"""Endings of a type that are left to later batches; the latest ones."""

Left = dict[LimitName, list[Ending]]


class Breakers:
    """For one batch. `left` is what earlier ones could not count; `latest` the last change of a limit that is known."""

    def __init__(self, ledger: Ledger, left: Left, latest: int) -> None:
        self.moves: list[Limit] = []  #: limits whose breakers this batch moved
        self.news: dict[LimitName, Limit] = {}  #: those, and what others have moved
        self.uncounted: Left = {}
        self._ledger = ledger
        self._left = left
        self._latest = latest
        self._open: dict[LimitName, tuple[Limit, list[Probe]]] = {}  #: held, not closed; and its probes that run
        self._admitted: dict[LimitName, list[Task]] = {}

    async def count(self, rows: Rows, limits: Limits, asked: Iterable[str]) -> None:
        """Of the subjects that are `asked` about also what was left."""
        if not limits.breakers:
            return
        endings = self._endings(limits)
        names = sorted(endings.keys() | (self._left.keys() & set(map(limit_of, asked))))
        held = await rows.hold_limits(names) if names else {}
        for name in names:
            limit = held.get(name)
            if limit is None:
                self.uncounted[name] = endings.get(name, [])
            elif limit.circuit is not None:
                given = [*self._left.pop(name, ()), *endings.get(name, ())]
                await self._stand(rows, limit, judge(limit.circuit, given, rows.now))
                self._compare(limits.get(name), limit)

    def _endings(self, limits: Limits) -> Left:
        found: Left = {}
        for before in self._ledger.ended():
            limit = limits.breakers.get((before.namespace, before.type))
            if limit is not None and (one := ending(before, self._ledger.rows[before.id])) is not None:
                found.setdefault(limit.id, []).append(one)
        return found

    async def _stand(self, rows: Rows, limit: Limit, circuit: Circuit) -> None:
        """Write how a breaker stands, if that is new."""
        if circuit == limit.circuit:
            return
        made = with_circuit(limit, circuit, max(rows.now, self._latest + 1))
        await rows.put_limit(made)
        if limit.circuit is not None and circuit.moved(limit.circuit):
            self.moved(made)

    def moved(self, limit: Limit) -> None:
        """This batch has moved the breaker of a limit."""
        self.moves.append(limit)
        self.news[limit.id] = limit

    def _compare(self, known: Limit | None, limit: Limit) -> None:
        """What is held tells what another server has done a moment ago."""
        before = None if known is None else known.circuit
        if limit.circuit is not None and (before is None or limit.circuit.moved(before)):
            self.news.setdefault(limit.id, limit)

    async def probes(self, rows: Rows, held: Mapping[LimitName, Limit]) -> dict[LimitName, int]:
        """How many tasks may start under each of these limits whose breaker is not closed."""
        circuits = {name: limit.circuit for name, limit in held.items() if limit.circuit is not None}
        circuits = {name: circuit for name, circuit in circuits.items() if circuit.stage is not Stage.CLOSED}
        ids = sorted({task_id for circuit in circuits.values() for task_id, _ in circuit.probing})
        found = await rows.trace(ids) if ids else {}
        rooms: dict[LimitName, int] = {}
        for name, circuit in circuits.items():
            running = [(i, number) for i, number in circuit.probing if i in found and _runs(found[i], number)]
            self._open[name] = (held[name], running)
            rooms[name] = free(circuit, len(running), rows.now)
        return rooms

    def admit(self, name: LimitName, task: Task) -> None:
        """It may start as a probe; whether a poll takes it is not known yet."""
        if name in self._open:
            self._admitted.setdefault(name, []).append(task)

    async def flush(self, rows: Rows) -> None:
        """Note the probes that were handed out."""
        for name, tasks in self._admitted.items():
            limit, running = self._open[name]
            leased = [now for task in tasks if (now := self._ledger.rows[task.id]).state == State.LEASED]
            if leased and limit.circuit is not None:
                started = [(task.id, task.lease_number) for task in leased]
                await self._stand(rows, limit, probe(limit.circuit, running, started, rows.now))

    def report(self) -> None:
        """The batch is committed."""
        for limit in self.moves:
            assert limit.circuit is not None
            log.warning(
                "the breaker of type %r in namespace %r is %s: %s",
                limit.name, limit.namespace, limit.circuit.stage.name, limit.circuit.reason,
            )  # fmt: skip


def _runs(task: Task, lease_number: int) -> bool:
    return task.state == State.LEASED and task.lease_number == lease_number
