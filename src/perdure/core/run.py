"""What a workflow run is beside its `Task`: who it is, its chain, its history in numbers, its inbox, its prepared turn.

The task row has the state, the lease, the queue and the deadlines, as with every other kind; these are more columns of
the same row, read and written only where workflows are concerned. Nobody changes a Run in place but `core/`, on a copy.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from perdure.core.model import Payloads


class Run(msgspec.Struct, gc=False):
    """Field names are column names, in the order in which stores select them."""

    id: bytes  #: the run id: that of the task
    workflow_id: str
    first_run_id: bytes
    original_run_id: bytes
    previous_run_id: bytes | None = None
    root_workflow_id: str = ""
    root_run_id: bytes | None = None
    reset_run_id: bytes | None = None
    reset_event_id: int | None = None
    parent_namespace: str | None = None
    parent_workflow_id: str | None = None
    parent_close_policy: int = 0  #: a ClosePolicy; 0 without a parent
    chain_attempt: int = 1
    chain_deadline: int | None = None  #: end of the execution time-out, over all runs of the chain
    cron: str | None = None
    branch: int = 0
    event_count: int = 0  #: events written; the next one gets the id after this
    history_bytes: int = 0
    inbox_count: int = 0  #: the number of the last message that arrived
    inbox_taken: int = 0  #: the number of the last message that became events
    turn_inbox: int = 0  #: the number of the last message that the turn in hand sees
    turn_prepared_at: int | None = None  #: when the turn in hand began, or was last written; else None
    turn_scheduled_at: int = 0  #: when the run last became ready for a turn
    turn_written: int = 0  #: the WorkflowTaskCompleted of the turn in hand, once it was written; else 0
    turn_timeout: int | None = None
    failures: int = 0  #: turns in a row that failed; the first one is in the history
    sticky_session: int | None = None  #: incarnation of the worker that has the run in memory
    children: int = 0  #: open rows whose parent this is
    build: str | None = None
    versioning_behavior: int | None = None
    paused: bool = False
    memo: bytes | None = None  #: MessagePack of dict[str, Payloads]
    search_attributes: bytes | None = None  #: MessagePack of dict[str, Any]


class ClosePolicy(IntEnum):
    """What becomes of a child workflow when its parent closes (CHILD-02); the numbers are Temporal's."""

    TERMINATE = 1
    ABANDON = 2
    REQUEST_CANCEL = 3


class MessageKind(IntEnum):
    EVENTS = 1  #: becomes the events that it carries
    UPDATE = 2  #: is shown to the code, which may make an event of it


class Resolution(msgspec.Struct, frozen=True):
    """What people have done about a closed run that its code could not bring to a good end."""

    note: str
    identity: str  #: who wrote it
    at: int  #: microseconds


class Message(msgspec.Struct, gc=False):
    """A row of an inbox. `seq` counts from 1 in each run and gives the order of arrival."""

    run_id: bytes
    seq: int
    kind: int
    at: int  #: microseconds
    body: bytes  #: MessagePack: a list of AnyAttributes, or an UpdateRequest


class UpdateRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An update on its way to the code. `task_id` is the row that will have the answer."""

    update_id: str
    task_id: bytes
    name: str
    input: Payloads = ()
    header: dict[str, str] = {}
    identity: str = ""


class Page(msgspec.Struct, gc=False):
    """A row of the history: consecutive events as they were appended together."""

    run_id: bytes
    first: int  #: id of the first event
    count: int
    data: bytes  #: `events.pack_events`, zstd-compressed from 1 KiB on; `pages.unpack` reads it
