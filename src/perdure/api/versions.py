"""Which open runs lack a version marker (RPLY-20, API-26): what must be known before the code is removed that runs from
before `ctx.patched` or `ctx.version` need.

No index has markers: they are looked for in the histories, page by page, and no further than to the first that is
found. One answer reads a bounded part of the database, and the next one goes on behind it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from perdure.api.reading import reading
from perdure.api.workflow_views import RUNNING
from perdure.core import pages
from perdure.core.errors import InvalidArgument
from perdure.core.events import Event, MarkerRecorded
from perdure.core.model import Payloads, Task
from perdure.core.turn_commands import VERSION_MARKER
from perdure.store.base import Filter, Store

MAX_READ_BYTES = 32 * 1024 * 1024
"""Of histories, as they are stored, that one answer reads, about."""
_ROWS = 500  #: open runs that are read at once
_ROUNDS = 10  #: how often
_AT_ONCE = 20  #: runs whose histories are read in one statement
_PAGES = 20  #: of each of them
_BYTES = 512 * 1024  #: the same


def check_lacking(type: str | None, status: str | None) -> None:
    """Raises InvalidArgument unless open runs of one type are asked for: a marker means something to its code only."""
    if type is None:
        raise InvalidArgument("lacks_version needs the type of the workflow", field="type", kind="null")
    if status not in (None, RUNNING):
        raise InvalidArgument("lacks_version is about open runs", field="status", limit=RUNNING, kind="str")


class Lacking:
    """Looks for the markers of one version id, for one answer."""

    def __init__(self, store: Store, version: str) -> None:
        self._store = store
        self._version = version
        self._read = 0  #: bytes

    async def find(self, filter: Filter, limit: int) -> tuple[list[Task], bytes | None]:
        """At most `limit` runs without the marker, of those that pass a filter of open ones, and the id of the last run
        that was looked at if there may be more behind it."""
        found: list[Task] = []
        filter = replace(filter, limit=_ROWS)
        for _ in range(_ROUNDS):
            with reading():
                tasks = await self._store.find(filter)
            for start in range(0, len(tasks), _AT_ONCE):
                some = tasks[start : start + _AT_ONCE]
                lacking = await self._among([task.id for task in some])
                found += [task for task in some if task.id in lacking]
                if len(found) > limit:
                    return found[:limit], found[limit - 1].id
                if self._read >= MAX_READ_BYTES:
                    return found, some[-1].id
            if len(tasks) < _ROWS:
                return found, None
            filter = replace(filter, before=tasks[-1].id)
        return found, filter.before

    async def _among(self, run_ids: list[bytes]) -> set[bytes]:
        """Those of these runs that have no such marker."""
        lacking = set(run_ids)
        after = dict.fromkeys(run_ids, 1)  # event 1 is the start
        while after:
            with reading():
                histories = await self._store.histories(after, _PAGES, _BYTES)
            after = {}
            for run_id, read in histories.items():
                size = sum(len(page.data) for page in read)
                self._read += size
                if any(self._is_marker(event) for page in read for event in pages.unpack(page.data)):
                    lacking.discard(run_id)
                elif len(read) == _PAGES or size >= _BYTES:
                    after[run_id] = read[-1].first + read[-1].count - 1
        return lacking

    def _is_marker(self, event: Event) -> bool:
        marker = event.attributes
        return (
            isinstance(marker, MarkerRecorded)
            and marker.marker_name == VERSION_MARKER
            and _value(marker.details.get("id", ())) == self._version
        )


def _value(payloads: Payloads) -> object:
    """The value of an id's payload, which is plain JSON; None for anything else."""
    try:
        return msgspec.json.decode(payloads[0].data)
    except (IndexError, msgspec.DecodeError):
        return None
