"""Examples of requests and answers about events, streams and webhooks."""

from __future__ import annotations

from typing import Any

from perdure.api.examples import TASK_ID

WEBHOOK_ID = "wh_5c1f0e6a9b3d47208f11"
_EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "2f1-9c",
    "type": "task.failed",
    "source": "/namespaces/default",
    "subject": TASK_ID,
    "time": "2026-11-30T09:00:07Z",
    "data": {
        "task_id": TASK_ID,
        "type": "resize",
        "app": "default",
        "queue": "photos",
        "state": "FAILED",
        "attempt": 5,
        "workflow_id": None,
        "failure_code": "handler_error",
        "failure_type": "FileNotFoundError",
        "reason": None,
    },
}
_FEED = {"recording": True, "oldest": "0-0", "last": "2f1-9c"}
_WEBHOOK: dict[str, Any] = {
    "id": WEBHOOK_ID,
    "url": "https://shop.example/hooks/perdure",
    "types": ["task.failed"],
    "created_at": "2026-11-30T08:00:00Z",
    "cursor": "2f1-9c",
    "secret": None,
    "disabled_at": None,
    "note": "",
    "failures": 0,
    "failing_since": None,
    "retry_at": None,
    "last_error": "",
    "sent_at": "2026-11-30T09:00:08Z",
}
_NEW = _WEBHOOK | {"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "cursor": "0-0", "sent_at": None}
_DISABLED = _WEBHOOK | {"disabled_at": "2026-11-30T10:00:00Z", "note": "the shop moves house"}
_LETTER = {"event": _EVENT, "given_up_at": "2026-12-01T09:00:10Z", "tries": 31, "error": "status 500"}

REQUESTS: dict[str, dict[str, Any]] = {
    "recordEvents": {"begin": {"on": True}},
    "addWebhook": {"of what failed": {"url": "https://shop.example/hooks/perdure", "types": ["task.failed"]}},
    "disableWebhook": {"with a note": {"note": "the shop moves house"}},
    "replayWebhook": {"since a time": {"since": "2026-11-30T08:00:00Z"}, "all there is": {"cursor": "oldest"}},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "listEvents": {"200": {"events": [_EVENT], "cursor": "2f1-9c"}},
    "recordEvents": {"200": _FEED},
    "getTaskStream": {
        "200": {
            "chunks": [{"offset": 0, "attempt": 1, "kind": "text", "data": "Once upon"}], "next": 1, "closed": False
        }
    },
    "addWebhook": {"201": _NEW},
    "listWebhooks": {"200": {"webhooks": [_WEBHOOK]}},
    "deleteWebhook": {"200": {}},
    "disableWebhook": {"200": _DISABLED},
    "replayWebhook": {"200": _WEBHOOK | {"cursor": "2f0-9a"}},
    "pingWebhook": {"200": {"ok": True, "detail": "it was taken"}},
    "listWebhookDeadLetters": {"200": {"letters": [_LETTER]}},
}  # fmt: skip
