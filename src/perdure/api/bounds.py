"""What the OpenAPI document says of values beyond their types. The checks are those of core/limits.py; here is what a
generated client can know of them before it asks. What a schema cannot say stands in words at its field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.api.run_drafts import ID_CONFLICT, STAGES
from perdure.api.schedule_drafts import MAX_JITTER, MAX_REMAINING, MAX_REQUEST_ID, MAX_TIMES
from perdure.api.turn_checks import ID_REUSE
from perdure.api.workflow_views import RUNNING, STATUSES
from perdure.core.bulk import STATES
from perdure.core.calendar import GAPS, REPEATED
from perdure.core.cron import MAX_CHARACTERS as MAX_CRON
from perdure.core.durations import MAX_CHARACTERS, MAX_SECONDS
from perdure.core.limit_checks import MAX_SHARE
from perdure.core.limit_rules import SCOPES
from perdure.core.limits import (
    MAX_ATTEMPTS,
    MAX_BATCH,
    MAX_CRASHES,
    MAX_DELAYS,
    MAX_FATAL_TYPES,
    MAX_NAME,
    MAX_PAGE,
    MAX_PRIORITY,
    MAX_PROBES,
    MAX_SLOTS,
    MAX_TEXT,
    MAX_WAIT_SECONDS,
    MAX_WINDOW,
    MIN_COOL_DOWN,
    MIN_WINDOW,
)
from perdure.core.schedule import MAX_ID, MISFIRE, OVERLAP
from perdure.core.states import State

Schema = dict[str, Any]

_AMOUNT = r"[0-9]+(\.[0-9]+)?"
_NAME = {"minLength": 1, "maxLength": MAX_NAME}
_MOMENT = {"format": "date-time"}
_ID = {"format": "uuid"}
_GROUP = {"pattern": "^[0-9a-f]{16}$"}
_WAIT = {"maxLength": MAX_CHARACTERS, "pattern": rf"^({_AMOUNT}|({_AMOUNT}(ms|s|m|h|d|w))+|P.+)$"}
_DURATION = {"minimum": 0, "maximum": MAX_SECONDS, **_WAIT}
_WAIT_SECONDS = {"minimum": 0, "maximum": MAX_WAIT_SECONDS, **_WAIT}

_TIMING: dict[str, Schema] = {
    "cron": {"minLength": 1, "maxLength": MAX_CRON},
    "interval": {**_DURATION, "minimum": 1},
    "phase": _DURATION,
    "timezone": {"minLength": 1},
    "gap": {"enum": list(GAPS)},
    "repeated": {"enum": list(REPEATED)},
    "start_at": _MOMENT,
    "end_at": _MOMENT,
    "jitter": {**_DURATION, "maximum": MAX_JITTER},
}
_SCHEDULE: dict[str, Schema] = {
    **_TIMING,
    "overlap_policy": {"enum": list(OVERLAP)},
    "misfire_policy": {"enum": list(MISFIRE)},
    "catch_up_window": _DURATION,
    "remaining": {"minimum": 1, "maximum": MAX_REMAINING},
    "note": {"maxLength": MAX_TEXT},
}

BODIES: dict[str, dict[str, Schema]] = {
    "TaskRequest": {
        "task_type": _NAME,
        "type": _NAME,
        "queue": _NAME,
        "app": _NAME,
        "idempotency_key": _NAME,
        "fairness_key": {"maxLength": MAX_NAME},
        "concurrency_key": {"maxLength": MAX_NAME},
        "weight": {"minimum": 1, "maximum": MAX_SLOTS},
        "singleton": {"maxLength": MAX_NAME},
        "debounce": {"maxLength": MAX_NAME},
        "priority": {"minimum": 1, "maximum": MAX_PRIORITY},
        "delay": _DURATION,
        "run_at": _MOMENT,
    },
    "Throttle": {"key": _NAME, "period": {**_DURATION, "minimum": 0.001}},
    "LimitRequest": {
        "scope": {"enum": list(SCOPES)},
        "name": {"maxLength": MAX_NAME},
        "max_running": {"minimum": 0, "maximum": MAX_SLOTS},
        "rate": {"pattern": r"^[0-9]{1,7}/\S+$"},
        "burst": {"minimum": 1, "maximum": MAX_SLOTS},
        "weight": {"minimum": 1, "maximum": MAX_SHARE},
        "note": {"maxLength": MAX_TEXT},
    },
    "Breaker": {
        "crashes": {"minimum": 1, "maximum": MAX_CRASHES},
        "failure_rate": {"exclusiveMinimum": 0, "maximum": 1},
        "window": {**_DURATION, "minimum": MIN_WINDOW, "maximum": MAX_WINDOW},
        "min_attempts": {"minimum": 1, "maximum": MAX_ATTEMPTS},
        "cool_down": {**_DURATION, "minimum": MIN_COOL_DOWN, "maximum": MAX_WINDOW},
        "probes": {"minimum": 1, "maximum": MAX_PROBES},
    },
    "SwitchRequest": {"type": _NAME, "note": {"maxLength": MAX_TEXT}},
    "PauseQueueRequest": {"note": {"maxLength": MAX_TEXT}},
    "BatchRequest": {"tasks": {"minItems": 1, "maxItems": MAX_BATCH}},
    "RetryRequest": {
        "max_attempts": {"minimum": 1, "maximum": 10_000},
        "base": {"minimum": 0.001, "maximum": 86_400},
        "factor": {"minimum": 1, "maximum": 100},
        "cap": {"minimum": 0.001, "maximum": 31 * 86_400},
        "fatal_types": {"maxItems": MAX_FATAL_TYPES},
        "delays": {"maxItems": MAX_DELAYS},
    },
    "TimeoutOptions": {
        "schedule_to_start": _DURATION,
        "start_to_close": _DURATION,
        "schedule_to_close": _DURATION,
        "heartbeat": _DURATION,
        "lease": _DURATION,
    },
    "CancelRequest": {"reason": {"maxLength": MAX_TEXT}},
    "BulkRequest": {"request_id": {"maxLength": MAX_NAME}, "reason": {"maxLength": MAX_TEXT}},
    "BulkFilterRequest": {
        "state": {"enum": sorted({state.name for states in STATES.values() for state in states})},
        "queue": _NAME,
        "type": _NAME,
        "since": _MOMENT,
        "failure_group": _GROUP,
        "error": {"maxLength": MAX_TEXT},
    },
    "WorkflowRequest": {
        "workflow_type": _NAME,
        "type": _NAME,
        "workflow_id": _NAME,
        "queue": _NAME,
        "request_id": _NAME,
        "id_reuse": {"enum": list(ID_REUSE)},
        "id_conflict": {"enum": list(ID_CONFLICT)},
        "start_delay": _DURATION,
        "execution_timeout": _DURATION,
        "run_timeout": _DURATION,
        "cron": {"maxLength": MAX_NAME},
        "priority": {"minimum": 1, "maximum": MAX_PRIORITY},
        "fairness_key": {"maxLength": MAX_NAME},
    },
    "SignalPart": {"name": _NAME},
    "SignalRequest": {"name": _NAME, "run_id": _ID, "request_id": _NAME},
    "QueryRequest": {"name": _NAME, "run_id": _ID, "wait": _WAIT_SECONDS},
    "UpdateRequest": {
        "name": _NAME,
        "run_id": _ID,
        "update_id": _NAME,
        "wait": _WAIT_SECONDS,
        "stage": {"enum": list(STAGES)},
    },
    "EndRequest": {"reason": {"maxLength": MAX_TEXT}, "run_id": _ID},
    "PauseRequest": {"run_id": _ID},
    "ResetRequest": {
        "event_id": {"minimum": 1},
        "step": _NAME,
        "reason": {"maxLength": MAX_TEXT},
        "run_id": _ID,
        "request_id": _NAME,
    },
    "ActivityRequest": {"run_id": _ID},
    "ScheduleRequest": {"id": {"minLength": 1, "maxLength": MAX_ID}, **_SCHEDULE},
    "ScheduleBody": _SCHEDULE,
    "PreviewRequest": {**_TIMING, "count": {"minimum": 1, "maximum": MAX_TIMES}, "after": _MOMENT},
    "TaskTemplate": {
        "task_type": _NAME,
        "type": _NAME,
        "queue": _NAME,
        "app": _NAME,
        "fairness_key": {"maxLength": MAX_NAME},
        "concurrency_key": {"maxLength": MAX_NAME},
        "weight": {"minimum": 1, "maximum": MAX_SLOTS},
        "priority": {"minimum": 1, "maximum": MAX_PRIORITY},
    },
    "WorkflowTemplate": {
        "workflow_type": _NAME,
        "type": _NAME,
        "queue": _NAME,
        "workflow_id": {"minLength": 1, "maxLength": MAX_ID},
        "fairness_key": {"maxLength": MAX_NAME},
        "priority": {"minimum": 1, "maximum": MAX_PRIORITY},
        "execution_timeout": _DURATION,
        "run_timeout": _DURATION,
    },
    "NoteRequest": {"note": {"maxLength": MAX_TEXT}},
    "TriggerRequest": {"request_id": {"minLength": 1, "maxLength": MAX_REQUEST_ID}},
    "BackfillRequest": {"start_at": _MOMENT, "end_at": _MOMENT},
}
"""Of the fields of requests."""

PARAMETERS: dict[str, Schema] = {
    "task_id": _ID,
    "job_id": _ID,
    "wait": _WAIT,
    "state": {"enum": [state.name for state in State]},
    "queue": _NAME,
    "type": _NAME,
    "since": _MOMENT,
    "limit": {"minimum": 1, "maximum": MAX_PAGE},
    "cursor": _ID,
    "failure_group": _GROUP,
    "action_id": _ID,
    "Idempotency-Key": _NAME,
    "workflow_id": _NAME,
    "webhook_id": _NAME,
    "activity_id": _NAME,
    "run_id": _ID,
    "lacks_version": _NAME,
    "schedule_id": {"minLength": 1, "maxLength": MAX_ID},
    "times": {"minimum": 0, "maximum": MAX_TIMES},
    "status": {"enum": [RUNNING, *STATUSES.values()]},
}
"""Of what stands in a path, a query or a header."""

OF_OPERATIONS: dict[tuple[str, str], Schema] = {
    ("listEvents", "cursor"): {"maxLength": 40},
    ("listEvents", "types"): {"maxLength": MAX_TEXT},
    ("deleteLimit", "scope"): {"enum": list(SCOPES)},
    ("deleteLimit", "name"): {"maxLength": MAX_NAME},
    ("getTaskStream", "offset"): {"minimum": 0},
    ("removeSearchAttribute", "name"): _NAME,
}
"""Of parameters whose names mean something else elsewhere."""

_OF: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format", "enum"),
    "number": ("minimum", "maximum", "exclusiveMinimum"),
    "integer": ("minimum", "maximum"),
    "array": ("minItems", "maxItems"),
}
"""Which bounds a type can have."""


def bound(document: Schema) -> None:
    """Write all bounds into a document."""
    schemas = document["components"]["schemas"]
    for name, fields in BODIES.items():
        for field, bounds in fields.items():
            _tighten(schemas[name]["properties"][field], bounds)
    schemas["TaskRequest"]["anyOf"] = [{"required": ["task_type"]}, {"required": ["type"]}]
    for name in ("ScheduleRequest", "ScheduleBody", "PreviewRequest"):
        schemas[name]["oneOf"] = [{"required": [field]} for field in ("cron", "calendar", "interval")]
    schemas["ResetRequest"]["oneOf"] = [{"required": ["event_id"]}, {"required": ["step"]}]
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                named = parameter["name"]
                own = OF_OPERATIONS.get((operation["operationId"], named))
                _tighten(parameter["schema"], PARAMETERS.get(named, {}) if own is None else own)


def _tighten(schema: Schema, bounds: Schema) -> None:
    for branch in _branches(schema):
        branch.update((name, bounds[name]) for name in _OF.get(branch.get("type", ""), ()) if name in bounds)


def _branches(schema: Schema) -> Iterator[Schema]:
    yield schema
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _branches(branch)
