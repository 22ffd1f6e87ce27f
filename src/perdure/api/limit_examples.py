"""An example of every request and answer about limits."""

from __future__ import annotations

from typing import Any

_LIMIT: dict[str, Any] = {
    "scope": "queue",
    "name": "mail",
    "max_running": 50,
    "rate": "600/m",
    "burst": 20,
    "weight": None,
    "paused": False,
    "note": "what the provider allows",
    "declared": False,
    "running": 50,
    "blocked": 1234,
    "updated_at": "2026-11-30T09:00:00Z",
    "breaker": None,
}
_KEY = _LIMIT | {
    "scope": "key", "name": "customer", "max_running": 2, "rate": None, "burst": None, "note": "", "running": 14,
    "blocked": 0,
}  # fmt: skip

_TYPE = _LIMIT | {
    "scope": "type", "name": "charge", "max_running": None, "rate": None, "burst": None, "note": "", "running": 0,
    "breaker": {
        "crashes": 5, "failure_rate": 0.5, "window": 60.0, "min_attempts": 20, "cool_down": 30.0, "probes": 1,
        "state": "open", "since": "2026-11-30T09:00:00Z", "until": "2026-11-30T09:00:30Z",
        "reason": "5 crashes in a row", "in_a_row": 0, "attempts": 0, "failed": 0,
    },
}  # fmt: skip

ANSWERS: dict[str, dict[str, Any]] = {
    "listLimits": {"200": {"limits": [_KEY, _LIMIT, _TYPE]}},
    "setLimit": {"200": _LIMIT | {"running": 0, "blocked": 0}},
    "switchBreaker": {"200": _TYPE},
    "deleteLimit": {"200": {"scope": "queue", "name": "mail"}},
    "pauseQueue": {"200": {"queue": "mail", "paused": True, "note": "the provider is down"}},
    "setQueueOwner": {"200": {"queue": "mail", "owner": "mail team"}},
    "deleteQueueOwner": {"200": {"queue": "mail", "owner": ""}},
    "resumeQueue": {"200": {"queue": "mail", "paused": False, "note": ""}},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "setLimit": {
        "a queue": {"scope": "queue", "name": "mail", "max_running": 50, "rate": "600/m", "burst": 20},
        "each value of a key": {"scope": "key", "name": "customer", "max_running": 2},
        "the breaker of a type": {
            "scope": "type",
            "name": "charge",
            "breaker": {"crashes": 5, "failure_rate": 0.5, "cool_down": "30s"},
        },
        "the share of a fairness key": {"scope": "fairness", "name": "gold", "weight": 5},
    },
    "switchBreaker": {"by hand": {"type": "charge", "open": False, "note": "the new version is out"}},
    "setQueueOwner": {"a team": {"owner": "mail team", "alert_depth": 5_000}},
    "pauseQueue": {"why": {"note": "the provider is down"}},
    "resumeQueue": {"nothing to say": {}},
}
