"""Examples of requests and answers about dead letters, actions on many jobs, and the standing checks."""

from __future__ import annotations

from typing import Any

from perdure.api.examples import TASK_ID

ACTION_ID = "01a22c71-9f02-7000-8a11-5b0d2c7e4f10"
GROUP = "7903f0ad214c2a6e"
_FILTER = {
    "state": None, "queue": None, "type": "resize", "since": None, "failure_group": None, "error": "FileNotFoundError",
    "query": "",
}  # fmt: skip
_ACTION: dict[str, Any] = {
    "id": ACTION_ID,
    "action": "retry",
    "state": "RUNNING",
    "filter": _FILTER,
    "total": 1200,
    "at_least": False,
    "done": 400,
    "failed": 0,
    "errors": [],
    "created_at": "2026-11-30T09:10:00Z",
    "closed_at": None,
    "links": {"cancel": f"/v1/bulk/{ACTION_ID}/cancel", "self": f"/v1/bulk/{ACTION_ID}"},
}
_CANCELED = _ACTION | {"state": "CANCELED", "closed_at": "2026-11-30T09:10:07Z"}
_COUNT = {"action": "retry", "total": 1200, "at_least": False}
_FINDING = {
    "check": "no_worker",
    "detail": "42 tasks are ready on queue 'photos', and no worker polls it",
    "advice": "Start a worker for it.",
    "count": 42,
    "namespace": "default",
    "examples": [],
}
_BULK: dict[str, Any] = {
    "by type and error": {"filter": {"type": "resize", "error": "FileNotFoundError"}},
    "only the count": {"filter": {"failure_group": GROUP}, "dry_run": True},
}

REQUESTS: dict[str, dict[str, Any]] = {
    "retryTask": {"with another payload": {"payload": {"path": "b.png"}}},
    "retryTasks": _BULK,
    "cancelTasks": {"a queue": {"filter": {"queue": "photos"}, "reason": "the customer has left"}},
    "cancelWorkflows": {"a type": {"filter": {"type": "fulfil"}, "reason": "the shop is closed"}},
    "terminateWorkflows": {"only the count": {"filter": {"type": "fulfil"}, "dry_run": True}},
    "deleteTasks": {"a group of failures": {"filter": {"failure_group": GROUP}}},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "listFailures": {
        "200": {
            "groups": [
                {
                    "group": GROUP,
                    "type": "resize",
                    "kind": "job",
                    "error": "FileNotFoundError",
                    "message": "no such file: <path>",
                    "count": 1200,
                    "first_seen": "2026-11-30T08:01:12Z",
                    "last_seen": "2026-11-30T09:00:07Z",
                    "last_task_id": TASK_ID,
                    "at_least": False,
                }
            ],
            "more": False,
        }
    },
    "retryTasks": {"202": _ACTION, "200": _COUNT},
    "cancelTasks": {"202": _ACTION | {"action": "cancel"}, "200": _COUNT | {"action": "cancel"}},
    "deleteTasks": {"202": _ACTION | {"action": "delete"}, "200": _COUNT | {"action": "delete"}},
    "cancelWorkflows": {"202": _ACTION | {"action": "cancel_runs"}, "200": _COUNT | {"action": "cancel_runs"}},
    "terminateWorkflows": {
        "202": _ACTION | {"action": "terminate_runs"},
        "200": _COUNT | {"action": "terminate_runs"},
    },
    "listBulkActions": {"200": {"actions": [_ACTION], "next": None}},
    "getBulkAction": {"200": _ACTION},
    "cancelBulkAction": {"202": _CANCELED},
    "getGoldenSignals": {
        "200": {
            "seconds": 300.0,
            "queues": [
                {
                    "name": "photos",
                    "started": 1200,
                    "schedule_to_start_p50": 0.0025,
                    "schedule_to_start_p99": 0.21,
                }
            ],
            "alarm_lag_p99": 0.02,
            "started": 1250,
            "leases_lost": 1,
            "dispatch_share": 0.4,
            "utilization": 0.75,
        },
    },
    "runDoctor": {
        "200": {"at": "2026-11-30T09:12:00Z", "whole": True, "checks": ["lost", "no_worker"], "findings": [_FINDING]}
    },
}
"""By operation and status."""
