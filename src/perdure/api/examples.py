"""An example of every request and answer of the REST interface, for its OpenAPI document. Tests hold each to the types
in schema.py."""

from __future__ import annotations

from typing import Any

TASK_ID = "01a22c60-3b9a-7000-9de6-012d84a3cb20"
_CREATED = "2026-11-30T09:00:00Z"
_STARTED = "2026-11-30T09:00:00.120000Z"
_CLOSED = "2026-11-30T09:00:07Z"

_JOB: dict[str, Any] = {
    "id": TASK_ID,
    "state": "QUEUED",
    "progress": {"done": 0, "total": None, "message": ""},
    "created_at": _CREATED,
    "updated_at": _CREATED,
    "result_url": None,
    "error": None,
    "links": {"cancel": f"/v1/jobs/{TASK_ID}/cancel"},
}
_RUNNING = _JOB | {
    "state": "RUNNING",
    "progress": {"done": 4_200_000, "total": 10_000_000, "message": "copying rows"},
    "updated_at": _STARTED,
}
_SUCCEEDED = _JOB | {
    "state": "SUCCEEDED",
    "progress": {"done": 10_000_000, "total": 10_000_000, "message": ""},
    "updated_at": _CLOSED,
    "result_url": f"/v1/jobs/{TASK_ID}/result?key=0f3a&expires=1796030107&signature=Zm9v",
}
_CANCELLING = _RUNNING | {"state": "CANCELLING"}

_RETRY = {"max_attempts": 1, "base": 1, "factor": 2, "cap": 3600, "fatal_types": [], "delays": []}
_TASK: dict[str, Any] = {
    "task_id": TASK_ID,
    "namespace": "default",
    "app": "default",
    "type": "resize",
    "queue": "photos",
    "state": "FAILED",
    "job_state": "FAILED",
    "priority": 3,
    "attempt": 1,
    "max_attempts": 1,
    "lost_deliveries": 0,
    "created_at": _CREATED,
    "updated_at": _CLOSED,
    "run_at": None,
    "started_at": _STARTED,
    "closed_at": _CLOSED,
    "expires_at": None,
    "deadline": None,
    "timeouts": {
        "schedule_to_start": None,
        "start_to_close": 600,
        "schedule_to_close": None,
        "heartbeat": None,
        "lease": 30,
    },
    "retry": _RETRY,
    "worker": "4711@host",
    "idempotency_key": "resize a.png",
    "fairness_key": "",
    "concurrency_key": "",
    "weight": 1,
    "identity": "",
    "retry_of": None,
    "retried_by": None,
    "failure_group": "7903f0ad214c2a6e",
    "progress": None,
    "error": {"code": "handler_error", "message": "no such file: a.png", "retryable": True},
    "failure": {
        "message": "no such file: a.png",
        "code": "handler_error",
        "type": "FileNotFoundError",
        "source": "perdure-python",
        "stack": "",
        "retryable": True,
        "details": None,
        "cause": None,
    },
    "attempts": [
        {
            "attempt": 1,
            "outcome": "failed",
            "worker": "4711@host",
            "started_at": _STARTED,
            "finished_at": _CLOSED,
            "failure": None,
        }
    ],
    "waiting_for": "",
    "next_event_at": None,
    "cancel_requested_at": None,
    "cancel_reason": None,
    "links": {
        "cancel": f"/v1/tasks/{TASK_ID}/cancel",
        "retry": f"/v1/tasks/{TASK_ID}/retry",
        "job": f"/v1/jobs/{TASK_ID}",
        "self": f"/v1/tasks/{TASK_ID}",
    },
    "payload": {"path": "a.png"},
    "result": None,
}
_WAITING = _TASK | {
    "state": "ENQUEUED",
    "job_state": "QUEUED",
    "attempt": 0,
    "max_attempts": 5,
    "retry": _RETRY | {"max_attempts": 5},
    "updated_at": _CREATED,
    "started_at": None,
    "closed_at": None,
    "worker": None,
    "failure_group": None,
    "error": None,
    "failure": None,
    "attempts": [],
    "waiting_for": "a worker: none is registered for queue 'photos'",
}

REQUESTS: dict[str, dict[str, Any]] = {
    "enqueueTask": {
        "one": {"task_type": "resize", "queue": "photos", "payload": {"path": "a.png"}},
        "with options": {
            "task_type": "resize",
            "payload": {"path": "a.png"},
            "idempotency_key": "resize a.png",
            "delay": "1h30m",
            "priority": 1,
            "retry": {"max_attempts": 3, "base": 2},
            "timeouts": {"start_to_close": "10m"},
        },
    },
    "enqueueTasks": {
        "two": {
            "tasks": [
                {"task_type": "resize", "payload": {"path": "b.png"}, "idempotency_key": "resize b.png"},
                {"task_type": "resize", "payload": {"path": "c.png"}, "idempotency_key": "resize c.png"},
            ]
        }
    },
    "cancelTask": {"with a reason": {"reason": "wrong file"}},
    "cancelJob": {"with a reason": {"reason": "wrong file"}},
}
"""By operation, then by name."""

_NOT_MADE = {
    "code": "invalid_argument",
    "title": "Invalid argument",
    "status": 400,
    "detail": "priority is 9",
    "field": "priority",
    "limit": "1 to 5",
    "kind": "int",
}

ANSWERS: dict[str, dict[str, Any]] = {
    "enqueueTask": {"202": _JOB | {"task_id": TASK_ID, "duplicate": False}},
    "enqueueTasks": {"200": {"tasks": [{"task_id": TASK_ID}, {"error": _NOT_MADE}]}},
    "getTask": {"200": _TASK},
    "listTasks": {"200": {"tasks": [_WAITING | {"payload": None, "waiting_for": "its start time"}], "next": TASK_ID}},
    "cancelTask": {"202": {"task_id": TASK_ID, "state": "CANCELED", "job_state": "CANCELLED"}},
    "retryTask": {"202": {"task_id": TASK_ID, "state": "ENQUEUED"}},
    "getJob": {"202": _RUNNING, "200": _SUCCEEDED},
    "getJobResult": {"200": {"size": 160}, "202": _RUNNING},
    "cancelJob": {"202": _CANCELLING},
    "listQueues": {
        "200": {
            "queues": [
                {
                    "name": "photos",
                    "ready": 10_000,
                    "running": 64,
                    "delayed": 12,
                    "retrying": 3,
                    "oldest_ready_seconds": 41.5,
                    "workers": 2,
                    "at_least": ["ready"],
                    "owner": "media team",
                    "alert_depth": 5_000,
                }
            ]
        }
    },
    "listWorkers": {
        "200": {
            "workers": [
                {
                    "identity": "4711@host",
                    "queues": ["photos", "default"],
                    "slots": 100,
                    "build": "",
                    "started_at": _CREATED,
                    "seen_at": _STARTED,
                    "ending": False,
                    "running": [],
                    "more_running": False,
                }
            ]
        }
    },
    "getHealth": {"200": {"status": "ok"}},
}
"""By operation, then by status."""

PROBLEMS: dict[str, dict[str, Any]] = {
    "400": _NOT_MADE,
    "401": {"code": "unauthenticated", "title": "An API key is needed", "status": 401,
            "detail": "the API key is not known, or was revoked"},
    "403": {"code": "permission_denied", "title": "Permission denied", "status": 403,
            "detail": "the API key is not of namespace 'shop'"},
    "404": {"code": "not_found", "title": "Not found", "status": 404, "detail": "there is no such task",
            "field": "task_id"},
    "409": {"code": "idempotency_conflict", "title": "This idempotency key was used with another body", "status": 409,
            "detail": "This idempotency key was used with another body"},
    "410": {"code": "gone", "title": "Not kept any more", "status": 410, "field": "task_id",
            "detail": "there is no such task any more; closed tasks are kept for 30 days"},
    "413": {"code": "payload_too_large", "title": "Payload too large", "status": 413, "field": "payload",
            "detail": "payload has 300002 bytes", "limit": "262144 bytes", "kind": "bytes"},
    "429": {"code": "resource_exhausted", "title": "Too much at once", "status": 429, "retryable": True,
            "detail": "the queue of requests is full", "retry_after": 1.0},
    "503": {"code": "unavailable", "title": "Temporarily unavailable", "status": 503, "retryable": True,
            "detail": "the database does not answer", "retry_after": 1.0},
}  # fmt: skip
"""By status."""
