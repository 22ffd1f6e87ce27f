"""What a run still owes: compensations that have not run, or that failed (SAGA-04, VIS-06).

A saga (sdk/saga.py) says so by a search attribute of its run, which is written by ordinary commands: PENDING from its
first compensation on, FAILED once one of them failed for good, NOTHING when nothing is left to be undone. A run that
was completed, or went on as a new one, has none left to run, and owes only what failed; one that was closed in any
other way owes what it says. That is written into its closed row, where people find it until they note what they have
done (Resolution).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from enum import IntEnum
from typing import Any

from perdure.core.events import Event, UpsertWorkflowSearchAttributes
from perdure.core.model import pack, unpack
from perdure.core.run import Run

ATTRIBUTE = "perdure_compensations"
"""The search attribute; applications leave this name alone."""
PENDING = "pending"
FAILED = "failed"
NOTHING = "none"


class Owed(IntEnum):
    """What the closed row of a run says."""

    NOT_RUN = 1  #: it was closed before its compensations had all run
    FAILED = 2


_OWED = {PENDING: Owed.NOT_RUN, FAILED: Owed.FAILED}
_ENCODED = ATTRIBUTE.encode()


def owed(run: Run) -> Owed | None:
    """What a run owes if it is, or were, closed as it is now."""
    return owed_by(run.search_attributes)


def owed_by(attributes: bytes | None) -> Owed | None:
    """What a run of these search attributes owes."""
    if attributes is None or _ENCODED not in attributes:
        return None
    said = unpack(attributes, dict[str, Any]).get(ATTRIBUTE)
    return _OWED.get(said) if isinstance(said, str) else None


def without(run: Run) -> Run:
    """A run that owes nothing."""
    if run.search_attributes is None or _ENCODED not in run.search_attributes:
        return run
    left = left_out(unpack(run.search_attributes, dict[str, Any]))
    run = copy(run)
    run.search_attributes = pack(left)
    return run


def as_of(run: Run, history: Iterable[Event]) -> Run:
    """A run that owes what it did at the end of a history."""
    said = None
    for event in history:
        if isinstance(event.attributes, UpsertWorkflowSearchAttributes):
            said = event.attributes.search_attributes.get(ATTRIBUTE, said)
    run = without(run)
    if said is not None:
        run = copy(run)
        known = {} if run.search_attributes is None else unpack(run.search_attributes, dict[str, Any])
        run.search_attributes = pack({**known, ATTRIBUTE: said})
    return run


def left_out(attributes: dict[str, Any]) -> dict[str, Any]:
    """Search attributes of a run that owes nothing."""
    return {name: value for name, value in attributes.items() if name != ATTRIBUTE}
