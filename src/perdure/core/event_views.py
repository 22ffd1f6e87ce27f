"""Events as the world outside sees them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from perdure.core import ids, outbox
from perdure.core.event_messages import Event, EventData
from perdure.core.outbox import OutboxEvent

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def view(event: OutboxEvent) -> Event:
    """The document of an event."""
    task_id = "" if event.is_of_breaker else ids.text(event.task_id)
    data = EventData(
        task_id, event.task_type, event.app, event.queue, outbox.state_after(event.type), event.attempt,
        event.workflow_id or None, event.failure_code or None, event.failure_type or None, event.reason or None,
    )  # fmt: skip
    source = f"/namespaces/{event.namespace}"
    time = _EPOCH + timedelta(microseconds=event.at)
    return Event("1.0", event.cursor.text, event.type, source, task_id or event.task_type, time, data)


def document(event: OutboxEvent) -> bytes:
    """It as JSON."""
    return msgspec.json.encode(view(event))
