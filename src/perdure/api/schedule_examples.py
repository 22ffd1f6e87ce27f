"""An example of every request and answer about schedules, for the OpenAPI document. Tests hold each to the types in
schedule_schema.py."""

from __future__ import annotations

from typing import Any

SCHEDULE_ID = "nightly report"
TASK_ID = "01a22c60-3b9a-7000-9de6-012d84a3cb20"
_PATH = "/v1/schedules/nightly%20report"
_LINKS = {
    "pause": f"{_PATH}/pause",
    "resume": f"{_PATH}/resume",
    "trigger": f"{_PATH}/trigger",
    "backfill": f"{_PATH}/backfill",
    "self": _PATH,
}
_TIMING = {"cron": "30 2 * * MON-FRI", "timezone": "Europe/Berlin"}
_TEMPLATE = {"task_type": "report", "payload": {"customer": "ann"}, "queue": "reports"}
_TIMES = [
    {"at": "2026-12-01T01:30:00Z", "local": "2026-12-01T02:30:00+01:00"},
    {"at": "2026-12-02T01:30:00Z", "local": "2026-12-02T02:30:00+01:00"},
]
_FIRING = {
    "scheduled_at": "2026-11-30T01:30:00Z",
    "at": "2026-11-30T01:30:00.004000Z",
    "outcome": "started",
    "task_id": TASK_ID,
    "workflow_id": None,
}
_SCHEDULE: dict[str, Any] = {
    "id": SCHEDULE_ID,
    "namespace": "default",
    "state": "active",
    "version": "5f2b8c1e7a9d40c6b3e1f0a2d4c6e8b0",
    "note": "",
    "identity": "",
    "cron": "30 2 * * MON-FRI",
    "calendar": None,
    "interval": None,
    "phase": None,
    "timezone": "Europe/Berlin",
    "gap": None,
    "repeated": None,
    "start_at": None,
    "end_at": None,
    "jitter": None,
    "task_template": {
        "type": "report",
        "payload": {"customer": "ann"},
        "queue": "reports",
        "app": "default",
        "priority": 3,
        "fairness_key": "",
        "concurrency_key": "",
        "weight": 1,
        "retry": None,
        "timeouts": None,
        "headers": {},
    },
    "workflow_template": None,
    "overlap_policy": "skip",
    "misfire_policy": "once",
    "catch_up_window": None,
    "remaining": None,
    "created_at": "2026-11-27T09:00:00Z",
    "updated_at": "2026-11-30T01:30:00.004000Z",
    "next_times": _TIMES,
    "next_firing_at": "2026-12-01T01:30:00Z",
    "buffered": None,
    "running": [{"task_id": TASK_ID, "workflow_id": None}],
    "recent": [_FIRING],
    "counts": {"started": 1},
    "backfilling": False,
    "links": _LINKS,
}


def _did(what: str) -> dict[str, Any]:
    return {"id": SCHEDULE_ID, "did": what, "links": _LINKS}


REQUESTS: dict[str, dict[str, Any]] = {
    "createSchedule": {
        "a task": {"id": SCHEDULE_ID, **_TIMING, "task_template": _TEMPLATE},
        "a workflow": {
            "id": "orders",
            "interval": "10m",
            "workflow_template": {"workflow_type": "collect", "input": {"shop": 1}},
            "overlap_policy": "buffer_one",
            "misfire_policy": "skip",
        },
    },
    "putSchedule": {"another time": {**_TIMING, "cron": "45 2 * * MON-FRI", "task_template": _TEMPLATE}},
    "updateSchedule": {
        "another time": {"cron": "45 2 * * MON-FRI"},
        "if it is as it was read": {"version": "5f2b8c1e7a9d40c6b3e1f0a2d4c6e8b0", "task_template": {"priority": 2}},
    },
    "pauseSchedule": {"with a note": {"note": "the printer is broken"}},
    "resumeSchedule": {"with a note": {"note": "it prints again"}},
    "triggerSchedule": {"once": {"request_id": "b2c5"}},
    "backfillSchedule": {"a night": {"start_at": "2026-11-26T00:00:00Z", "end_at": "2026-11-27T00:00:00Z"}},
    "previewTimes": {"two": {**_TIMING, "count": 2}},
}
"""By operation, then by name."""

ANSWERS: dict[str, dict[str, Any]] = {
    "createSchedule": {"201": _did("created"), "200": _did("unchanged")},
    "listSchedules": {"200": {"schedules": [_SCHEDULE | {"next_times": []}], "next": None}},
    "getSchedule": {"200": _SCHEDULE},
    "putSchedule": {"200": _did("updated"), "201": _did("created")},
    "updateSchedule": {"200": _did("updated")},
    "deleteSchedule": {"200": _did("deleted")},
    "pauseSchedule": {"200": _did("updated")},
    "resumeSchedule": {"200": _did("updated")},
    "triggerSchedule": {"202": {"id": SCHEDULE_ID, "firing": _FIRING, "links": _LINKS}},
    "backfillSchedule": {"202": _did("updated")},
    "previewTimes": {"200": {"times": _TIMES}},
}
"""By operation, then by status."""
