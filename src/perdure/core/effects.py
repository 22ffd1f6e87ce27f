"""Everything a decision may cause, as a closed union. A decision returns these and writes nothing; the engine writes
them in one transaction. Each carries the whole new task: a row may be decided upon several times in one batch, and the
last value is what is written, by the narrowest statement that covers all that happened to it."""

from __future__ import annotations

import msgspec

from perdure.core.group_events import CallResult
from perdure.core.model import Attempt, Key, Task
from perdure.core.run import Message, Page, Run


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
    """The task is closed and moves out of the table of open tasks. `continued`: by another run of the same workflow id,
    so nobody who waits for its end hears of this one's."""

    task: Task
    continued: bool = False


class Delete(msgspec.Struct, frozen=True, gc=False):
    """The child of a run is closed, and leaves nothing but what its parent's history says."""

    task: Task


class Record(msgspec.Struct, frozen=True, gc=False):
    """An attempt that did not end its task."""

    attempt: Attempt


class PutRun(msgspec.Struct, frozen=True, gc=False):
    """The workflow columns of a run change."""

    run: Run


class Append(msgspec.Struct, frozen=True, gc=False):
    """More of a history."""

    page: Page


class Post(msgspec.Struct, frozen=True, gc=False):
    """A message for an inbox."""

    message: Message


class Take(msgspec.Struct, frozen=True, gc=False):
    """The messages of an inbox up to a number are not needed any more."""

    run_id: bytes
    seq: int


class PassOn(msgspec.Struct, frozen=True, gc=False):
    """A key goes from one task to another."""

    old: Key
    new: Key


class Arrive(msgspec.Struct, frozen=True, gc=False):
    """A call of a group has ended: its result, and the number of that in the pages of the group. Results that arrive in
    one batch have consecutive numbers and become one page."""

    group_id: bytes
    number: int
    result: CallResult


class CopyPages(msgspec.Struct, frozen=True, gc=False):
    """The pages of a history that hold nothing above `last` are those of another row too."""

    source_id: bytes
    target_id: bytes
    last: int


Effect = Insert | Lease | Change | Close | Delete | Record | PutRun | Append | Post | Take | PassOn | Arrive | CopyPages
