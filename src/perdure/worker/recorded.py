"""What the events of a history say of the code that caused them."""

from __future__ import annotations

from typing import Any

from perdure.core.events import Event
from perdure.core.run import UpdateRequest
from perdure.sdk.converter import from_payloads


def request_of(event: Event) -> UpdateRequest:
    """The update that was accepted."""
    accepted: Any = event.attributes
    return UpdateRequest(
        update_id=accepted.update_id,
        task_id=accepted.task_id,
        name=accepted.name,
        input=accepted.input,
        header=accepted.header,
        identity=accepted.identity,
    )


def version_of(marker: Any) -> tuple[str, int]:
    """Name and number of a marker of `ctx.version`."""
    name, number = (from_payloads(marker.details[key], key) for key in ("id", "version"))
    return str(name), int(number)  # type: ignore[call-overload]
