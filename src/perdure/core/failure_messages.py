"""What clients ask about dead letters and for actions on many tasks, and what a server answers."""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.core.body import Body
from perdure.core.errors import Problem

ACTIONS = ("retry", "cancel", "delete", "cancel_runs", "terminate_runs")
"""What can be done to many jobs, or workflow runs, at once."""


class ListFailures(Body):
    """The groups of dead letters of a namespace, those that grew last first (RETRY-06). `type` is that of the tasks;
    `limit` is the most that are answered."""

    type: str | None = None
    limit: int = 50


class FailureGroup(Body):
    """Dead letters that failed alike and that nobody has retried. `last_task_id` is the one that was enqueued last.
    Counts and times stop at the 10,000 newest of a group; then `at_least` is true."""

    group: str
    type: str
    kind: str  #: "job" or "workflow"
    error: str  #: the type of the error, or its code
    message: str  #: without what differs from one to the next
    count: int
    first_seen: datetime
    last_seen: datetime
    last_task_id: str
    at_least: bool = False


class FailurePage(Body):
    groups: list[FailureGroup]
    more: bool = False  #: there are groups beyond these


class BulkFilter(Body):
    """Which jobs, or workflow runs, an action is about; conjunctive, and what is not given does not narrow it. All
    actions but a retry need at least one field.

    `state` is one that the action can do something about: a cancel takes ENQUEUED, LEASED or RETRY_WAIT, a retry FAILED
    (what it takes if nothing is said), CANCELED or EXPIRED, a delete every closed one, and actions on runs ENQUEUED,
    LEASED, RETRY_WAIT or WAITING. `failure_group` and `error`, the
    type of the error, find dead letters that nobody has retried.
    """

    state: str | None = None
    queue: str | None = None
    type: str | None = None
    since: datetime | None = None  #: created at or after
    failure_group: str | None = None
    error: str | None = None
    query: str = ""  #: docs/search.md, without ORDER BY


class StartBulk(Body):
    """Do something to all jobs, or workflow runs, that a filter finds, in steps behind live work (RETRY-07, RETRY-08).
    The same `request_id` within 24 hours answers the action that the first request began; another body under it is a
    conflict. `dry_run` only counts. `reason` is that of a cancel, and of what terminates runs."""

    action: str
    filter: BulkFilter = msgspec.field(default_factory=BulkFilter)
    request_id: str = ""
    dry_run: bool = False
    reason: str = ""


class BulkError(Body):
    """Why one job was left as it is."""

    task_id: str
    error: Problem


class BulkView(Body):
    """An action on many jobs. `total` was counted before it began and stops at 100,000 (`at_least`); it is no bound,
    because jobs come and go meanwhile. `id` is empty where nothing was begun but the count."""

    action: str
    filter: BulkFilter
    total: int
    at_least: bool = False
    id: str = ""
    state: str = ""  #: RUNNING, SUCCEEDED, CANCELED
    done: int = 0
    failed: int = 0
    errors: list[BulkError] = []  #: the first 20
    created_at: datetime | None = None
    closed_at: datetime | None = None


class GetBulk(Body):
    """An action by id; `wait` (seconds, at most 25) holds the answer until it has ended."""

    id: str
    wait: float = 0.0


class FindBulk(Body):
    """The actions of a namespace, newest first; `cursor` is the `next` of the page before."""

    limit: int = 50
    cursor: str | None = None


class BulkPage(Body):
    actions: list[BulkView]
    next: str | None = None
