"""The one payload of all workloads: 1 KiB of JSON with a bit of structure."""

from __future__ import annotations

import json
from typing import Any

SIZE = 1024  #: bytes as JSON, ", " and ": " between the parts


def _padded(text: str) -> dict[str, Any]:
    return {
        "id": 123456,
        "kind": "bench.noop",
        "tenant": "acme",
        "nested": {"a": 1, "b": [1, 2, 3], "c": None},
        "flag": True,
        "ratio": 0.25,
        "text": text,
    }


PAYLOAD = _padded("x" * (SIZE - len(json.dumps(_padded("")))))
