"""The history of a run, to look at, to keep in a file, and to replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from perdure.client.base import Service
from perdure.core import history_json
from perdure.core.errors import InvalidArgument
from perdure.core.events import Event, GroupCompleted, GroupStarted
from perdure.core.group_events import CallResult
from perdure.core.pages import unpack, unpack_results
from perdure.core.workflow_messages import GroupResults, History


@dataclass(frozen=True)
class WorkflowHistory:
    """All events of one run, from the first on."""

    workflow_id: str
    run_id: str
    events: list[Event]
    groups: dict[int, list[CallResult]] = field(default_factory=dict)
    """The results of groups that have completed, by the event that began each."""

    def to_json(self) -> bytes:
        """As JSON that people can read, and `from_json` too."""
        document: dict[str, object] = {
            "workflow_id": self.workflow_id,
            "run_id": self.run_id,
            "events": history_json.to_json(self.events),
        }
        if self.groups:
            document["groups"] = {str(began): history_json.results_to_json(it) for began, it in self.groups.items()}
        return msgspec.json.format(msgspec.json.encode(document), indent=2)

    @classmethod
    def from_json(cls, data: bytes | str) -> WorkflowHistory:
        """InvalidArgument for what `to_json`, `perdure workflows history --json` and REST did not write."""
        try:
            document = msgspec.json.decode(data)
            found = document.get("groups", {})
            groups = {int(began): history_json.results_from_json(it, "groups") for began, it in found.items()}
            events = history_json.from_json(document["events"])
            return cls(document["workflow_id"], document["run_id"], events, groups)
        except (AttributeError, msgspec.DecodeError, KeyError, TypeError, ValueError) as fault:
            raise InvalidArgument(f"this is no history: {fault!r}", field="history", kind="bytes") from None


async def read_history(service: Service, workflow_id: str, run_id: str | None, after: int = 0) -> WorkflowHistory:
    """The events of a run behind `after`, of which a server sends some at a time. NotFound."""
    events: list[Event] = []
    while True:
        reply = await service.history(History(workflow_id, run_id, after=after))
        events += (event for page in reply.pages for event in unpack(page) if event.id > after)
        run_id = reply.run_id  # the same one to the end, whichever is current by then
        if not reply.more:
            groups = {began: await read_results(service, row) for began, row in completed(events).items()}
            return WorkflowHistory(workflow_id, run_id, events, groups)
        after = events[-1].id


def completed(events: Iterable[Event]) -> dict[int, bytes]:
    """The rows of the groups that have completed, by the event that began each."""
    rows: dict[int, bytes] = {}
    found: dict[int, bytes] = {}
    for event in events:
        if isinstance(event.attributes, GroupStarted):
            rows[event.id] = event.attributes.task_id
        elif isinstance(event.attributes, GroupCompleted) and event.attributes.started_event_id in rows:
            found[event.attributes.started_event_id] = rows[event.attributes.started_event_id]
    return found


async def read_results(service: Service, row: bytes) -> list[CallResult]:
    """The results of a group, of which a server sends some at a time. NotFound."""
    results: list[CallResult] = []
    while True:
        reply = await service.group_results(GroupResults(str(UUID(bytes=row)), len(results)))
        results += (result for page in reply.pages for result in unpack_results(page))
        if not reply.more:
            return results
