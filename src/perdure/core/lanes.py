"""A lane: what one claim looks through. (namespace, queue, class), the class being work of jobs and activities or,
later, turns of workflows."""

from __future__ import annotations

WORK = "w"


def lane(namespace: str, queue: str, kind: str = WORK) -> str:
    """Names hold no unprintable characters (limits.py), so the separator cannot occur in them."""
    return f"{namespace}\x1f{queue}\x1f{kind}"
