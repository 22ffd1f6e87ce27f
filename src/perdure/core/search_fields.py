"""What a search can ask about: the fields that all tasks or workflow runs have, and the types of search attributes.

The names are those of Temporal's visibility where the meaning is the same. Each type says which operators it takes and
how a value in a query is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from perdure.core import compensations
from perdure.core.states import CLOSED_FROM, Kind, State


class Type(StrEnum):
    """Of a field; search attributes have one of the first seven."""

    KEYWORD = "Keyword"  #: text that is found as a whole, by its start, or by its order
    INT = "Int"
    DOUBLE = "Double"
    BOOL = "Bool"
    DATETIME = "Datetime"
    KEYWORD_LIST = "KeywordList"  #: several texts; it passes if one of them does
    TEXT = "Text"  #: prose, found by its words
    ID = "Id"
    STATE = "State"
    STATUS = "Status"
    DURATION = "Duration"
    GROUP = "Group"  #: of failures


REGISTRABLE = (
    Type.KEYWORD, Type.INT, Type.DOUBLE, Type.BOOL, Type.DATETIME, Type.KEYWORD_LIST, Type.TEXT,
)  # fmt: skip

_SAME = frozenset({"=", "!=", "IN", "IS"})
_ORDER = _SAME | {"<", "<=", ">", ">=", "BETWEEN"}
TAKES: dict[Type, frozenset[str]] = {
    Type.KEYWORD: _ORDER | {"STARTS_WITH"},
    Type.INT: _ORDER,
    Type.DOUBLE: _ORDER,
    Type.BOOL: frozenset({"=", "!=", "IS"}),
    Type.DATETIME: _ORDER,
    Type.KEYWORD_LIST: _SAME | {"STARTS_WITH"},
    Type.TEXT: frozenset({"=", "!=", "IS"}),
    Type.ID: _SAME,
    Type.STATE: _SAME,
    Type.STATUS: _SAME,
    Type.DURATION: _ORDER,
    Type.GROUP: _SAME,
}
"""The operators of each type. NOT may stand before IN, BETWEEN and STARTS_WITH."""


class Definition(msgspec.Struct, frozen=True):
    """`job` and `run` are the columns that it is of jobs and of workflow runs; "" where it has none."""

    type: Type
    job: str
    run: str
    meaning: str

    def column(self, kind: Kind) -> str:
        return self.run if kind == Kind.WORKFLOW else self.job


_T = Type
FIELDS: dict[str, Definition] = {
    "TaskId": Definition(_T.ID, "id", "", "id of the task"),
    "TaskType": Definition(_T.KEYWORD, "type", "", "name of the task"),
    "WorkflowId": Definition(_T.KEYWORD, "", "workflow_id", "id of the workflow"),
    "RunId": Definition(_T.ID, "", "id", "id of the run"),
    "WorkflowType": Definition(_T.KEYWORD, "", "type", "name of the workflow"),
    "State": Definition(_T.STATE, "state", "state", "state as in states.md"),
    "ExecutionStatus": Definition(_T.STATUS, "state", "state", "Running for every open one, or how it closed"),
    "EnqueueTime": Definition(_T.DATETIME, "created_at", "", "when it was enqueued"),
    "StartTime": Definition(_T.DATETIME, "started_at", "created_at", "a task's first start; when a run was started"),
    "CloseTime": Definition(_T.DATETIME, "closed_at", "closed_at", "when it closed; open ones have none"),
    "ExecutionDuration": Definition(_T.DURATION, "work_time", "run_time", "from StartTime to CloseTime"),
    "TaskQueue": Definition(_T.KEYWORD, "queue", "queue", "queue"),
    "Attempt": Definition(_T.INT, "attempt", "chain_attempt", "attempts spent; of a run its number in its retries"),
    "Worker": Definition(_T.KEYWORD, "worker", "worker", "who has it, or had it last"),
    "ErrorType": Definition(_T.KEYWORD, "error", "error", "type of the error that it failed with for good"),
    "FailureGroup": Definition(_T.GROUP, "group", "group", "group of failures that it is in"),
    "Retried": Definition(_T.BOOL, "retried", "", "whether a closed one was retried since"),
    "RequiresIntervention": Definition(_T.BOOL, "", "owed", "closed with compensations to do, and not resolved yet"),
    "HistoryLength": Definition(_T.INT, "", "event_count", "events of its history"),
    "HistorySizeBytes": Definition(_T.INT, "", "history_bytes", "bytes of its history"),
    "ParentWorkflowId": Definition(_T.KEYWORD, "", "parent_workflow_id", "id of the workflow that began it"),
    "RootWorkflowId": Definition(_T.KEYWORD, "", "root_workflow_id", "id of the first workflow above it"),
}

FIRST_COME = {Kind.JOB: "EnqueueTime", Kind.WORKFLOW: "StartTime"}
"""What lists are ordered by unless a query says something else. It is the order of ids."""
LAST_CLOSED = "CloseTime"
"""The other order that an index has."""

KNOWN: Mapping[str, Type] = {compensations.ATTRIBUTE: Type.KEYWORD}
"""Search attributes that every namespace has."""

_ENDS = {
    "Completed": State.SUCCEEDED,
    "Failed": State.FAILED,
    "Canceled": State.CANCELED,
    "Expired": State.EXPIRED,
    "Terminated": State.TERMINATED,
    "TimedOut": State.TIMED_OUT,
    "ContinuedAsNew": State.CONTINUED_AS_NEW,
}
_OPEN = tuple(int(state) for state in State if state < CLOSED_FROM)

STATES: dict[str, tuple[int, ...]] = {state.name: (int(state),) for state in State}
STATUSES: dict[str, tuple[int, ...]] = {"Running": _OPEN, **{name: (int(state),) for name, state in _ENDS.items()}}
"""The words of ExecutionStatus, each with the states that it stands for."""


def plain(word: str) -> str:
    """A word for a state without what differs from one spelling to another: TIMED_OUT is TimedOut (X-07)."""
    return word.replace("_", "").casefold().replace("cancelled", "canceled")
