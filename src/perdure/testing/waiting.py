"""Jobs that wait, as a test looks at them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.core.messages import TaskView
from perdure.sdk.converter import Converter
from perdure.sdk.hints import ANY
from perdure.sdk.task import REGISTRY


class Waiting(msgspec.Struct, frozen=True):
    """A job that was enqueued and has not ended. `payload` is what its handler will get: it has been encoded, stored,
    read and decoded. `due` is when it may run, `attempt` how many attempts it has behind it."""

    id: str
    type: str
    queue: str
    payload: object
    due: datetime
    attempt: int


def waiting(view: TaskView, converter: Converter) -> Waiting:
    """From a view that has the payload."""
    task = REGISTRY.get(view.type)
    due = view.next_event_at if view.state == "RETRY_WAIT" else view.run_at
    return Waiting(
        id=view.task_id,
        type=view.type,
        queue=view.queue,
        payload=converter.from_payloads(view.payload or (), "payload", ANY if task is None else task.payload),
        due=due or view.created_at,
        attempt=view.attempt,
    )
