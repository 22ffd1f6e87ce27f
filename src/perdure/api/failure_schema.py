"""What the REST interface takes and shows of dead letters, actions on many jobs, and the standing checks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from perdure.core import doctor_messages as d
from perdure.core import failure_messages as f
from perdure.core.errors import InvalidArgument, Problem

_FIELDS = f.BulkFilter.__struct_fields__


class RetryTaskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What the new task gets instead of the payload of the closed one."""

    payload: Any = None


class RetryPayload(msgspec.Struct):
    """The same body once more, for the payload as it was written, if there is one."""

    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class BulkFilterRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Conjunctive; all but a retry need at least one field. `state`: a cancel takes ENQUEUED, LEASED or RETRY_WAIT, of
    runs WAITING too; a retry FAILED, if nothing is said, CANCELED or EXPIRED; a delete every closed one.
    `failure_group` and `error`, the type of the error, find dead letters that nobody has retried. `query` is one more
    filter, without ORDER BY."""

    state: str | None = None
    queue: str | None = None
    type: str | None = None
    since: datetime | None = None
    failure_group: str | None = None
    error: str | None = None
    query: str = ""


class BulkRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which jobs, or runs. With a `request_id`, or the header Idempotency-Key, a repeat within 24 hours answers the
    action that the first request began. `dry_run` only counts. `reason` is that of a cancel."""

    filter: BulkFilterRequest | None = None
    request_id: str = ""
    dry_run: bool = False
    reason: str = ""


class FailureGroupDocument(msgspec.Struct):
    """Dead letters that failed alike and that nobody has retried. `message` names what differs: <n>, <text>, <path>.
    Counts and times stop at the 10,000 newest ones (`at_least`)."""

    group: str
    type: str
    kind: str
    error: str
    message: str
    count: int
    first_seen: datetime
    last_seen: datetime
    last_task_id: str
    at_least: bool


class FailureList(msgspec.Struct):
    """Those that grew last first; `more`: there are others."""

    groups: list[FailureGroupDocument]
    more: bool


class BulkErrorDocument(msgspec.Struct):
    """Why one job was left as it is."""

    task_id: str
    error: Problem


class BulkLinks(msgspec.Struct):
    """Paths on this server. Cancel by a POST."""

    cancel: str
    itself: str = msgspec.field(name="self")


class BulkDocument(msgspec.Struct):
    """An action on many jobs: RUNNING, SUCCEEDED or CANCELED. `total` was counted before it began, stops at 100,000
    (`at_least`) and is no bound. `errors` are the first 20."""

    id: str
    action: str
    state: str
    filter: BulkFilterRequest
    total: int
    at_least: bool
    done: int
    failed: int
    errors: list[BulkErrorDocument]
    created_at: datetime | None
    closed_at: datetime | None
    links: BulkLinks


class BulkCount(msgspec.Struct):
    """What a dry run answers: how many jobs the action would be about; it stops at 100,000 (`at_least`)."""

    action: str
    total: int
    at_least: bool


class BulkList(msgspec.Struct):
    """A page; `next` is the `cursor` of the following one, null on the last."""

    actions: list[BulkDocument]
    next: str | None = None


class FindingDocument(msgspec.Struct):
    """Something that should not be as it is, and what to do. `namespace` is empty for what concerns the database."""

    check: str
    detail: str
    advice: str
    count: int
    namespace: str
    examples: list[str]


class DoctorReport(msgspec.Struct):
    """What all standing checks found. `whole` is false where more than a million tasks are open."""

    at: datetime
    whole: bool
    checks: list[str]
    findings: list[FindingDocument]


def failure_list(page: f.FailurePage) -> FailureList:
    return FailureList([FailureGroupDocument(**_all(group)) for group in page.groups], page.more)


def bulk_document(view: f.BulkView) -> BulkDocument:
    fields = _all(view) | {"filter": BulkFilterRequest(**_all(view.filter))}
    fields["errors"] = [BulkErrorDocument(one.task_id, one.error) for one in view.errors]
    path = f"/v1/bulk/{view.id}"
    return BulkDocument(**fields, links=BulkLinks(f"{path}/cancel", path))


def report(reply: d.DoctorReply) -> DoctorReport:
    return DoctorReport(reply.at, reply.whole, reply.checks, [FindingDocument(**_all(one)) for one in reply.findings])


def filter_of(given: BulkFilterRequest | None, query: str | None) -> f.BulkFilter:
    """The filter of a request: that of its body, or `name=value,...` of its query."""
    if query is None:
        return f.BulkFilter() if given is None else f.BulkFilter(**_all(given))
    if given is not None:
        raise InvalidArgument("there is a filter in the body too", field="filter", limit="one of query and body")
    fields: dict[str, str] = {}
    for part in query.split(","):
        name, found, text = part.partition("=")
        if not found or name not in _FIELDS or name in fields:
            limit = f"name=value,... of {', '.join(_FIELDS)}"
            raise InvalidArgument(f"filter has {part[:50]!r}", field="filter", limit=limit, kind="str")
        fields[name] = text
    try:
        return msgspec.convert(fields, f.BulkFilter)
    except msgspec.ValidationError as fault:
        raise InvalidArgument(str(fault), field="filter", limit="RFC 3339 with an offset", kind="str") from None


def _all(body: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(body, name) for name in body.__struct_fields__}
