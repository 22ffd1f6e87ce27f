"""The history of a run, to look at, to keep in a file, and to replay."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from perdure.client.base import Service
from perdure.core import history_json
from perdure.core.errors import InvalidArgument
from perdure.core.events import Event
from perdure.core.pages import unpack
from perdure.core.workflow_messages import History


@dataclass(frozen=True)
class WorkflowHistory:
    """All events of one run, from the first on."""

    workflow_id: str
    run_id: str
    events: list[Event]

    def to_json(self) -> bytes:
        """As JSON that people can read, and `from_json` too."""
        document = {
            "workflow_id": self.workflow_id,
            "run_id": self.run_id,
            "events": history_json.to_json(self.events),
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2)

    @classmethod
    def from_json(cls, data: bytes | str) -> WorkflowHistory:
        """InvalidArgument for what `to_json`, `perdure workflows history --json` and REST did not write."""
        try:
            document = msgspec.json.decode(data)
            return cls(document["workflow_id"], document["run_id"], history_json.from_json(document["events"]))
        except (msgspec.DecodeError, KeyError, TypeError) as fault:
            raise InvalidArgument(f"this is no history: {fault!r}", field="history", kind="bytes") from None


async def read_history(service: Service, workflow_id: str, run_id: str | None, after: int = 0) -> WorkflowHistory:
    """The events of a run behind `after`, of which a server sends some at a time. NotFound."""
    events: list[Event] = []
    while True:
        reply = await service.history(History(workflow_id, run_id, after=after))
        events += (event for page in reply.pages for event in unpack(page) if event.id > after)
        run_id = reply.run_id  # the same one to the end, whichever is current by then
        if not reply.more:
            return WorkflowHistory(workflow_id, run_id, events)
        after = events[-1].id
