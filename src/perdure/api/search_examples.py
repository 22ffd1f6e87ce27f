"""An example of every request and answer about searches."""

from __future__ import annotations

from typing import Any

_ATTRIBUTE = {"name": "customer_tier", "type": "Keyword"}

ANSWERS: dict[str, dict[str, Any]] = {
    "countTasks": {"200": {"count": 1234, "at_least": False}},
    "countWorkflows": {"200": {"count": 100_000, "at_least": True}},
    "listSearchAttributes": {"200": {"search_attributes": [_ATTRIBUTE, {"name": "total", "type": "Double"}]}},
    "addSearchAttribute": {"200": _ATTRIBUTE},
    "removeSearchAttribute": {"200": {"name": "customer_tier"}},
}
REQUESTS: dict[str, dict[str, Any]] = {
    "addSearchAttribute": {
        "found as a whole": _ATTRIBUTE,
        "found by its size": {"name": "total", "type": "Double"},
    },
}
