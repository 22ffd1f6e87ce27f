"""Limits over the engine: validate, make commands, make the reply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.api import views
from perdure.api.part import Part
from perdure.api.plan import as_error
from perdure.api.reading import reading
from perdure.core import commands as c
from perdure.core import limit_checks
from perdure.core import limit_messages as lm
from perdure.core import limits as checks
from perdure.core.breaker import Circuit, Stage, lately
from perdure.core.describe import Standing
from perdure.core.limit_rules import FAIRNESS, KEY, NAMESPACE, QUEUE, TYPE, Limit, Limits, limit_of
from perdure.core.model import SECOND, Task
from perdure.store.base import Store

MOST = 10_000
"""Blocked tasks that one count looks at."""
MAX_SUBJECTS = 10_000
"""Subjects of which blocked tasks are counted."""
MAX_DECLARED = 1_000
"""Limits that one worker declares."""


class FlowControl(Part):
    """See client/limits.py for the operations."""

    async def limits(self, body: lm.ListLimits) -> lm.LimitsReply:
        store = self._engine.store
        with reading():
            found = [limit for limit in await store.limits() if limit.namespace == self._namespace]
            taken = Limits(found).occupied(await store.count_running(self._namespace)) if found else {}
            blocked = await _blocked(store, self._namespace) if found else {}
        return lm.LimitsReply([_view(limit, taken, blocked) for limit in found])

    async def set_limit(self, body: lm.SetLimit) -> lm.LimitReply:
        return await self._change_limit(c.PutLimit(limit=limit_checks.limit(self._namespace, body.limit)))

    def _declared(self, specs: Sequence[lm.LimitSpec]) -> list[c.PutLimit]:
        """What is to be done about limits that the code of a worker declares; most often they are known."""
        checks.integer(len(specs), "limits", 0, MAX_DECLARED)
        wanted = [limit_checks.limit(self._namespace, spec, declared=True) for spec in specs]
        known = self._engine.flow.known.rows
        return [c.PutLimit(limit=limit) for limit in wanted if not _says_the_same(known.get(limit.id), limit)]

    async def pause_limit(self, body: lm.PauseLimit) -> lm.LimitReply:
        checks.choice(body.scope, "scope", (NAMESPACE, QUEUE, TYPE, KEY))
        name = limit_checks.name(self._namespace, body.scope, body.name)
        return await self._change_limit(
            c.PauseLimit(name=name, paused=body.paused, note=checks.text(body.note, "note"))
        )

    async def delete_limit(self, body: lm.DeleteLimit) -> lm.LimitReply:
        name = limit_checks.name(self._namespace, body.scope, body.name)
        return await self._change_limit(c.DeleteLimit(name=name))

    async def switch_breaker(self, body: lm.SwitchBreaker) -> lm.LimitReply:
        name = limit_checks.name(self._namespace, TYPE, body.name)
        note = checks.text(body.note, "note")
        return await self._change_limit(c.SwitchBreaker(name=name, open=body.open, note=note))

    async def _standing(self, task: Task) -> Standing | None:
        """How the limit stands that a task is blocked on."""
        subject = task.blocked_on
        limit = None if subject is None else self._engine.flow.known.rows.get(limit_of(subject))
        if subject is None or limit is None:
            return None
        with reading():
            running = await self._engine.store.count_running(self._namespace)
        return Standing(limit, Limits([limit]).occupied(running).get(subject, 0))

    async def _change_limit(self, command: c.LimitChange) -> lm.LimitReply:
        (outcome,) = await self._engine.apply([command])
        if not isinstance(outcome, c.LimitIs):
            raise as_error(outcome)
        return lm.LimitReply(None if outcome.limit is None else _view(outcome.limit, {}, {}))


async def _blocked(store: Store, namespace: str) -> Mapping[str, int]:
    """Tasks that are blocked on each subject of a namespace."""
    subjects = await store.blocked_subjects(f"{namespace}\x1f", MAX_SUBJECTS)
    ours = [subject for subject in subjects if limit_of(subject)[0] == namespace]
    return await store.count_blocked(ours, MOST) if ours else {}


def _says_the_same(known: Limit | None, wanted: Limit) -> bool:
    """Whether a declared limit is stored already, or one of an operator is in its place."""
    if known is None or not known.declared:
        return known is not None
    return _said(known) == _said(wanted)


def _said(limit: Limit) -> tuple[object, ...]:
    settings = None if limit.circuit is None else limit.circuit.settings
    return (limit.max_running, limit.rate, limit.per, limit.burst, limit.weight, settings)


def _view(limit: Limit, taken: Mapping[str, int], blocked: Mapping[str, int]) -> lm.LimitView:
    return lm.LimitView(
        scope=limit.scope,
        name=limit.name,
        max_running=limit.max_running,
        rate=limit_checks.rate_text(limit),
        burst=limit.burst,
        weight=limit.weight if limit.scope == FAIRNESS else None,
        paused=limit.paused,
        note=limit.note,
        declared=limit.declared,
        running=_sum(limit, taken.items()),
        blocked=_sum(limit, blocked.items()),
        updated_at=views.moment(limit.updated_at),
        breaker=None if limit.circuit is None else _breaker(limit.circuit),
    )


def _breaker(circuit: Circuit) -> lm.BreakerView:
    attempts, failed = lately(circuit)
    return lm.BreakerView(
        crashes=circuit.crashes,
        failure_rate=circuit.failure_rate,
        window=circuit.window / SECOND,
        min_attempts=circuit.min_attempts,
        cool_down=circuit.cool_down / SECOND,
        probes=circuit.probes,
        state=circuit.stage.name.lower(),
        since=views.moment(circuit.since) if circuit.since else None,
        until=views.moment(circuit.until) if circuit.stage is Stage.OPEN else None,
        reason=circuit.reason,
        in_a_row=circuit.in_a_row,
        attempts=attempts,
        failed=failed,
    )


def _sum(limit: Limit, counted: Iterable[tuple[str, int]]) -> int:
    return sum(number for subject, number in counted if limit_of(subject) == limit.id)
