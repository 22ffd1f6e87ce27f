"""The events of a run, as its code needs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from perdure.client.base import Service
from perdure.core.errors import Conflict, InvalidArgument, NotFound, PerdureError
from perdure.core.events import Event
from perdure.core.pages import unpack
from perdure.core.workflow_messages import History

log = logging.getLogger("perdure.worker")

_PAUSE = (0.1, 5.0)


async def fetch(
    service: Service, workflow_id: str, run_id: str | None, after: int, wanted: Callable[[], bool]
) -> list[bytes]:
    """All pages behind event `after`; asked for until they are there, or nobody wants them any more. Raises NotFound
    and the like."""
    pages: list[bytes] = []
    pause, longest = _PAUSE
    while wanted():
        try:
            reply = await service.history(History(workflow_id, run_id, after=after))
        except (Conflict, InvalidArgument, NotFound):
            raise
        except PerdureError as error:
            log.warning("the history of run %s cannot be read, next try in %.1f s: %s", run_id, pause, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
            continue
        pages += reply.pages
        if not reply.more:
            break
        after = unpack(reply.pages[-1])[-1].id
    return pages


def events_after(pages: list[bytes], last: int) -> list[Event]:
    """The events in `pages` that come after the one with the id `last`."""
    return [event for page in pages for event in unpack(page) if event.id > last]
