"""The part of the service that is about dead letters, actions on many jobs, and the standing checks; Service inherits
it."""

from __future__ import annotations

import asyncio

import msgspec

from perdure.api import bulk as actions
from perdure.api.drafts import packed
from perdure.api.part import Part
from perdure.api.plan import as_changed, as_error
from perdure.api.reading import readable, reading
from perdure.api.views import moment
from perdure.core import bulk, decide, failures, ids, limits
from perdure.core import commands as c
from perdure.core import doctor_messages as d
from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.core.errors import Conflict, IdempotencyConflict, IllegalMove, NotFound
from perdure.core.model import Task
from perdure.core.states import Kind, State, is_closed
from perdure.store.base import Filter

MOST_GROUPS = 10_000
"""Groups among which those that grew last are looked for."""
_GROUPS_AT_ONCE = 500
_FIRST_GROUP = -(2**63)
MOST_COUNTED = 10_000
"""Dead letters of a group at which its count stops."""


class Failures(Part):
    """See client/failures.py for the operations."""

    async def failures(self, body: f.ListFailures) -> f.FailurePage:
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        type_ = None if body.type is None else limits.name(body.type, "type")
        store = self._engine.store
        with reading():
            found = [group for group in await self._groups() if type_ is None or group[1].type == type_]
            found.sort(key=lambda group: (group[1].closed_at or 0, group[0]), reverse=True)
            newest = dict(found[:limit])
            counts = await store.count_failures(self._namespace, list(newest), MOST_COUNTED)
        groups = [
            f.FailureGroup(
                group=failures.group_text(counted.group),
                type=newest[counted.group].type,
                kind=newest[counted.group].kind.name.lower(),
                error=(mark := failures.fingerprint(newest[counted.group])).error,
                message=mark.message,
                count=counted.count,
                first_seen=moment(counted.first),
                last_seen=moment(counted.last),
                last_task_id=ids.text(counted.newest),
                at_least=counted.count >= MOST_COUNTED,
            )
            for counted in counts
        ]
        groups.sort(key=lambda group: (group.last_seen, group.group), reverse=True)
        return f.FailurePage(groups, len(found) > limit)

    async def _groups(self) -> list[tuple[int, Task]]:
        """Some at a time, with live work between."""
        found: list[tuple[int, Task]] = []
        first = _FIRST_GROUP
        while len(found) < MOST_GROUPS:
            part = await self._engine.store.failure_groups(self._namespace, first, _GROUPS_AT_ONCE)
            found += part
            if len(part) < _GROUPS_AT_ONCE:
                break
            first = part[-1][0] + 1
            await asyncio.sleep(0)
        return found

    # --------------------------------------------------------------------------------------------------------- retry
    async def retry(self, body: m.Retry) -> m.RetryReply:
        """An open task is changed; a closed one stays as it is, and a new task like it is made, once however often
        asked."""
        task = await self._read(ids.parse(body.task_id))
        if task.kind != Kind.JOB:
            raise IllegalMove("only jobs are retried by hand", field="task_id")
        payload = None if body.payload is None else packed(limits.payload(body.payload, "payload"), "payload")
        if not is_closed(task.state):
            if payload is not None:
                raise IllegalMove("the payload of an open task is what it is; cancel it first", field="payload")
            command = c.Retry(namespace=self._namespace, task_id=task.id)
            changed = as_changed((await self._engine.apply([command]))[0])
            return m.RetryReply(ids.text(changed.task_id), changed.state.name)
        again = decide.repeat(task, payload)
        again.task_id = self._engine.mint.task_id(self._engine.now(), ids.slot(task.id))
        try:
            made = await self._make(again)
        except IdempotencyConflict:
            by = await self.retried_by(task)
            raise Conflict(
                f"it was retried with another payload{f', as task {by}' if by else ''}; retry that one", field="payload"
            ) from None
        state = State.ENQUEUED if made.created_at else (await self._read(made.task_id)).state
        return m.RetryReply(ids.text(made.task_id), state.name)

    async def retried_by(self, task: Task) -> str | None:
        """Which task repeats a closed one."""
        if task.closed_at is None or task.state == State.SUCCEEDED or task.kind != Kind.JOB:
            return None
        with reading():
            by = (await self._engine.store.retried_by([task.id])).get(task.id)
        return None if by is None else ids.text(by)

    # -------------------------------------------------------------------------------------------------- many at once
    async def start_bulk(self, body: f.StartBulk) -> f.BulkView:
        selection = actions.selection(body, self._namespace)
        request_id = limits.name(body.request_id, "request_id", empty=True)
        reason = limits.text(body.reason, "reason")
        if not body.dry_run and request_id and (known := await self._known(request_id, actions.digest(body))):
            return known
        with reading():
            selection = await actions.asked(self._engine.store, selection, body.filter.query)
            total, at_least = await actions.count(self._engine.store, selection)
        action = bulk.Action(action=body.action, selection=selection, total=total, at_least=at_least, reason=reason)
        if body.dry_run:
            return f.BulkView(body.action, body.filter, total, at_least)
        command = bulk.draft(action, self._identity, request_id, actions.digest(body))
        command.task_id = self._engine.mint.task_id(self._engine.now())
        made = (await self._engine.apply([command]))[0]
        if not isinstance(made, c.Enqueued):
            raise as_error(made)
        return actions.view(await self._action(made.task_id))

    async def _known(self, request_id: str, digest: bytes) -> f.BulkView | None:
        """The action that an earlier request of this id began; if it has another body, the command will be refused."""
        with reading():
            key = await self._engine.store.find_key((self._namespace, "default", "bulk", request_id))
        if key is None or key.digest != digest:
            return None
        try:
            return actions.view(await self._action(key.task_id))
        except NotFound:  # trimmed, and its key is on its way
            return None

    async def get_bulk(self, body: f.GetBulk) -> f.BulkView:
        action_id = ids.parse(body.id, "id")
        if wait := limits.wait(body.wait):
            await self._parking.hold(self._engine.watch(action_id, wait, namespace=self._namespace))
        return actions.view(await self._action(action_id))

    async def find_bulk(self, body: f.FindBulk) -> f.BulkPage:
        limit = limits.integer(body.limit, "limit", 1, limits.MAX_PAGE)
        before = None if body.cursor is None else ids.parse(body.cursor, "cursor")
        filter = Filter(namespace=self._namespace, limit=limit + 1, before=before, kind=Kind.BULK)
        with reading():
            found = await self._engine.store.find(filter)
        page = readable(actions.view, found[:limit])
        return f.BulkPage(page, ids.text(found[limit - 1].id) if len(found) > limit else None)

    async def _action(self, action_id: bytes) -> Task:
        with reading():
            task = (await self._engine.store.read([action_id])).get(action_id)
        if task is None or task.namespace != self._namespace or task.kind is not Kind.BULK:
            raise NotFound("there is no such action", field="id")
        return task

    async def doctor(self, _: d.Doctor) -> d.DoctorReply:
        with reading():
            report = await self._engine.doctor.examine()
        ours = [found for found in report.findings if found.namespace in ("", self._namespace)]
        return msgspec.structs.replace(report, findings=ours)
