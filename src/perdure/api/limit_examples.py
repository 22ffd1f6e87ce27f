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
}
_KEY = _LIMIT | {
    "scope": "key", "name": "customer", "max_running": 2, "rate": None, "burst": None, "note": "", "running": 14,
    "blocked": 0,
}  # fmt: skip

ANSWERS: dict[str, dict[str, Any]] = {
    "listLimits": {"200": {"limits": [_KEY, _LIMIT]}},
    "setLimit": {"200": _LIMIT | {"running": 0, "blocked": 0}},
    "deleteLimit": {"200": {"scope": "queue", "name": "mail"}},
    "pauseQueue": {"200": {"queue": "mail", "paused": True, "note": "the provider is down"}},
    "resumeQueue": {"200": {"queue": "mail", "paused": False, "note": ""}},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "setLimit": {
        "a queue": {"scope": "queue", "name": "mail", "max_running": 50, "rate": "600/m", "burst": 20},
        "each value of a key": {"scope": "key", "name": "customer", "max_running": 2},
        "the share of a fairness key": {"scope": "fairness", "name": "gold", "weight": 5},
    },
    "pauseQueue": {"why": {"note": "the provider is down"}},
    "resumeQueue": {"nothing to say": {}},
}
