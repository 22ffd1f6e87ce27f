"""Everything a decision may cause, as a closed union. A decision returns these and writes nothing; the engine writes
them in one transaction. Each carries the whole new task: a row may be decided upon several times in one batch, and the
last value is what is written, by the narrowest statement that covers all that happened to it."""

from __future__ import annotations

import msgspec

from perdure.core.model import Attempt, Task


class Insert(msgspec.Struct, frozen=True, gc=False):
    """A new task."""

    task: Task


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A claim: only the columns of the lease change."""

    task: Task


class Change(msgspec.Struct, frozen=True, gc=False):
    """Any other change of an open task."""

    task: Task


class Close(msgspec.Struct, frozen=True, gc=False):
    """The task is closed and moves out of the table of open tasks."""

    task: Task


class Record(msgspec.Struct, frozen=True, gc=False):
    """An attempt that did not end its task."""

    attempt: Attempt


Effect = Insert | Lease | Change | Close | Record
