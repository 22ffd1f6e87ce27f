"""The results of groups, which are kept beside the history: a machine asks for them where a group has completed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from perdure.client.base import Service
from perdure.core.errors import InvalidArgument, NotFound, PerdureError
from perdure.core.events import Event, GroupCompleted
from perdure.core.group_events import CallResult
from perdure.sdk.history import read_results
from perdure.sdk.waiting import Pending

log = logging.getLogger("perdure.worker")

_PAUSE = (0.1, 5.0)


def lacking(events: Iterable[Event], pending: Mapping[int, Pending], results: Mapping[int, object]) -> dict[int, bytes]:
    """The groups that have completed by these events, and whose results the code waits for: their rows, by the event
    that began each."""
    found: dict[int, bytes] = {}
    for event in events:
        if isinstance(event.attributes, GroupCompleted):
            began = event.attributes.started_event_id
            group = pending.get(began)
            if group is not None and not group.abandoned and began not in results:
                found[began] = group.command.task_id
    return found


async def fetch_results(
    service: Service, wants: Mapping[int, bytes], wanted: Callable[[], bool]
) -> dict[int, list[CallResult]]:
    """The results of these groups; asked for until they are there, or nobody wants them any more. Raises NotFound and
    the like."""
    found: dict[int, list[CallResult]] = {}
    pause, longest = _PAUSE
    while wanted() and (left := wants.keys() - found.keys()):
        began = min(left)
        try:
            found[began] = await read_results(service, wants[began])
        except (InvalidArgument, NotFound):
            raise
        except PerdureError as error:
            log.warning("the results of a group cannot be read, next try in %.1f s: %s", pause, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
    return found
