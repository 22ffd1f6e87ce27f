"""The outside world of the examples: whatever they do to it becomes a line of a file, `effects.txt` in the current
folder or the file that EFFECTS names."""

from __future__ import annotations

import os
from pathlib import Path


def effect(workflow_id: str, step: str, what: str) -> None:
    """Something has happened that cannot be taken back. Real code would send `workflow_id` and `step` along as a key,
    so that the other side knows an effect that comes twice."""
    with Path(os.environ.get("EFFECTS", "effects.txt")).open("a", encoding="utf-8") as lines:
        lines.write(f"{workflow_id} {step}: {what}\n")
