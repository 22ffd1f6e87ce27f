"""An example of every request and answer about workflows, for the OpenAPI document. Tests hold each to the types in
workflow_schema.py."""

from __future__ import annotations

from typing import Any

WORKFLOW_ID = "order-4711"
RUN_ID = "01a22c60-3b9a-7000-9de6-012d84a3cb20"
_STARTED = "2026-11-30T09:00:00Z"
_UPDATED = "2026-11-30T09:00:02Z"
_PATH = f"/v1/workflows/{WORKFLOW_ID}"

_LINKS = {
    "result": f"{_PATH}/result",
    "history": f"{_PATH}/history",
    "signal": f"{_PATH}/signal",
    "query": f"{_PATH}/query",
    "update": f"{_PATH}/update",
    "cancel": f"{_PATH}/cancel",
    "terminate": f"{_PATH}/terminate",
    "pause": f"{_PATH}/pause",
    "resume": f"{_PATH}/resume",
    "reset": f"{_PATH}/reset",
    "resolve": f"{_PATH}/resolve",
    "self": _PATH,
}
_RUN: dict[str, Any] = {
    "workflow_id": WORKFLOW_ID,
    "run_id": RUN_ID,
    "type": "fulfil",
    "queue": "orders",
    "namespace": "default",
    "status": "RUNNING",
    "state": "WAITING",
    "started_at": _STARTED,
    "updated_at": _UPDATED,
    "closed_at": None,
    "run_deadline": None,
    "history_length": 11,
    "history_bytes": 1480,
    "attempt": 1,
    "cron": "",
    "first_run_id": RUN_ID,
    "previous_run_id": "",
    "next_run_id": "",
    "parent_workflow_id": "",
    "parent_run_id": "",
    "root_workflow_id": WORKFLOW_ID,
    "waiting_for": "timer 'pick-up', activity 'print_label'",
    "next_event_at": "2026-12-03T09:00:01Z",
    "stuck": False,
    "failed_turns": 0,
    "worker": None,
    "paused": False,
    "cancel_requested_at": None,
    "search_attributes": {"customer": "ann", "total": 42.5},
    "pending_signals": 0,
    "history_warning": "",
    "memo": {"note": "gift"},
    "pending_activities": [
        {
            "activity_id": "7",
            "type": "print_label",
            "state": "RETRY_WAIT",
            "attempt": 2,
            "scheduled_event_id": 7,
            "queue": "printers",
            "worker": None,
            "next_attempt_at": _UPDATED,
            "progress": {"done": 1, "total": 2, "message": "first page"},
            "failure": None,
        }
    ],
    "pending_timers": [{"timer_id": "pick-up", "started_event_id": 8, "fires_at": "2026-12-03T09:00:01Z"}],
    "pending_children": [{"workflow_id": "invoice-4711", "run_id": RUN_ID, "type": "invoice", "initiated_event_id": 9}],
    "pending_groups": [],
    "failure": None,
    "resolution": None,
    "requires_intervention": False,
    "result": None,
    "links": _LINKS,
}
_LISTED = _RUN | {
    "waiting_for": "a signal, an update or a cancel request",
    "pending_activities": [],
    "pending_timers": [],
    "pending_children": [],
    "pending_groups": [],
}
_ABOUT = {"workflow_id": WORKFLOW_ID, "run_id": RUN_ID, "state": ""}
_UPDATE = {
    "workflow_id": WORKFLOW_ID,
    "run_id": RUN_ID,
    "update_id": "address 1",
    "stage": "completed",
    "result": {"accepted": True},
    "failure": None,
}

REQUESTS: dict[str, dict[str, Any]] = {
    "startWorkflow": {
        "one": {"workflow_type": "fulfil", "workflow_id": WORKFLOW_ID, "input": {"order": 4711}, "queue": "orders"},
        "with options": {
            "workflow_type": "fulfil",
            "workflow_id": "order-4712",
            "input": {"order": 4712},
            "id_conflict": "use_existing",
            "execution_timeout": "7d",
            "retry": {"max_attempts": 3},
            "memo": {"note": "gift"},
            "search_attributes": {"customer": "ann", "total": 42.5},
            "signal": {"name": "approve", "input": {"by": "bob"}},
        },
    },
    "signalWorkflow": {"one": {"name": "approve", "input": {"by": "bob"}, "request_id": "approve 4711"}},
    "queryWorkflow": {"one": {"name": "status"}},
    "updateWorkflow": {"one": {"name": "change_address", "input": {"city": "Ulm"}, "update_id": "address 1"}},
    "cancelWorkflow": {"with a reason": {"reason": "the customer called"}},
    "terminateWorkflow": {"with a reason": {"reason": "wrong data"}},
    "pauseWorkflow": {"one certain run": {"run_id": RUN_ID}},
    "resumeWorkflow": {"one certain run": {"run_id": RUN_ID}},
    "resetWorkflow": {
        "from an event": {"event_id": 7, "reason": "a bug"},
        "from a step": {"step": "charge", "reason": "the wrong account", "request_id": "ticket 17"},
    },
    "resolveWorkflow": {"one": {"note": "refunded by hand, ticket 17"}},
    "completeActivity": {
        "with a result": {"result": {"approved": True}},
        "with an error": {"error": "the printer is broken", "retryable": False},
    },
}
"""By operation, then by name."""

ANSWERS: dict[str, dict[str, Any]] = {
    "startWorkflow": {
        "202": {"workflow_id": WORKFLOW_ID, "run_id": RUN_ID, "started": True, "links": _LINKS, "update_id": None},
    },
    "listWorkflows": {"200": {"workflows": [_LISTED], "next": RUN_ID}},
    "getWorkflow": {"200": _RUN},
    "getWorkflowHistory": {
        "200": {
            "workflow_id": WORKFLOW_ID,
            "run_id": RUN_ID,
            "events": [
                {
                    "id": 1,
                    "time": _STARTED,
                    "type": "WorkflowExecutionStarted",
                    "attributes": {
                        "workflow_type": "fulfil",
                        "workflow_id": WORKFLOW_ID,
                        "task_queue": "orders",
                        "input": [{"order": 4711}],
                        "first_run_id": RUN_ID,
                    },
                }
            ],
            "closed": False,
            "next": "1",
        }
    },
    "getWorkflowResult": {"200": {"shipped": True}, "202": _LISTED},
    "signalWorkflow": {"202": _ABOUT},
    "queryWorkflow": {"200": {"result": "waiting for pick-up"}},
    "updateWorkflow": {"200": _UPDATE, "202": _UPDATE | {"stage": "accepted", "result": None}},
    "cancelWorkflow": {"202": _ABOUT},
    "terminateWorkflow": {"202": _ABOUT | {"state": "TERMINATED"}},
    "pauseWorkflow": {"202": _ABOUT | {"state": "WAITING"}},
    "resumeWorkflow": {"202": _ABOUT | {"state": "WAITING"}},
    "resetWorkflow": {
        "202": {"workflow_id": WORKFLOW_ID, "run_id": RUN_ID, "started": True, "links": _LINKS, "update_id": None},
    },
    "resolveWorkflow": {"202": _ABOUT | {"state": "FAILED"}},
    "completeActivity": {"202": _ABOUT | {"state": "SUCCEEDED"}},
}
"""By operation, then by status."""
