"""Attributes of the events of groups: many calls of one task that the code of a run waits for together.

A group is three events at most, however large it is: its inputs and its results are in pages of its own (groups.py). On
Temporal's wire these events are markers named "perdure.group_started" and so on, as those of steps are.
"""

from __future__ import annotations

import msgspec

from perdure.core.event_types import Attributes
from perdure.core.event_types import EventType as _T
from perdure.core.model import Failure, Payloads, RetryPolicy


class GroupStarted(Attributes, tag=1011, frozen=True):
    """`task_id` is the row of the group, under whose id its pages are kept."""

    event_type = _T.GROUP_STARTED
    group_id: str
    activity_type: str
    task_queue: str
    count: int
    task_id: bytes = b""
    schedule_to_start: float | None = None
    start_to_close: float | None = None
    schedule_to_close: float | None = None
    heartbeat: float | None = None
    retry: RetryPolicy | None = None
    priority: int = 3
    weight: int = 1
    policy: str = "fail_fast"  #: or "collect"
    window: int = 0  #: calls in flight at most; 0 is no bound
    completed_event_id: int = 0


class GroupCompleted(Attributes, tag=1012, frozen=True):
    """All calls have ended, and the results can be read; with "fail_fast" all have succeeded."""

    event_type = _T.GROUP_COMPLETED
    started_event_id: int
    failed: int = 0  #: calls that did not succeed


class GroupFailed(Attributes, tag=1013, frozen=True):
    """A call of a "fail_fast" group has failed for good. The others are canceled in the background."""

    event_type = _T.GROUP_FAILED
    started_event_id: int
    index: int  #: of the call, from 0
    failure: Failure
    retry_state: str = ""


class GroupCancelRequested(Attributes, tag=1014, frozen=True):
    """The code does not wait for it any more. No other event follows from the group."""

    event_type = _T.GROUP_CANCEL_REQUESTED
    started_event_id: int
    completed_event_id: int = 0


class CallResult(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """How a call of a group has ended, as the pages of the group keep it. `status` is "completed", "failed",
    "timed_out" or "canceled"."""

    index: int  #: of its input, from 0
    status: str
    result: Payloads = ()
    failure: Failure | None = None
    retry_state: str = ""
