"""A lane: what one claim looks through. (namespace, queue, class), the class being work of jobs and activities, or
turns of workflows."""

from __future__ import annotations

WORK = "w"
TURNS = "t"


def lane(namespace: str, queue: str, kind: str = WORK) -> str:
    """Names hold no unprintable characters (limits.py), so the separator cannot occur in them."""
    return f"{namespace}\x1f{queue}\x1f{kind}"


def lanes_of(namespace: str) -> tuple[str, str]:
    """Two names between which those of all lanes of a namespace lie, and of no other one."""
    return f"{namespace}\x1f", f"{namespace}\x20"


def namespace_of(lane: str) -> str:
    return lane.partition("\x1f")[0]


def queue_of(lane: str, kind: str = WORK) -> str | None:
    """The queue that a lane belongs to; None if it is not of this class."""
    _, queue, found = lane.split("\x1f")
    return queue if found == kind else None
