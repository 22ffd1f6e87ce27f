"""What a schedule is: the row's checkpoint, in two parts. What its owner said changes only by an update; how it stands
changes with each firing.

The row is a task of kind SCHEDULE that always WAITs; its alarm is the next firing. A nominal time is when a firing
should be by the timing, in microseconds since the epoch; the firing itself may be a little later.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.core.calendar import Timing
from perdure.core.model import Payloads, RetryPolicy, Timeouts

OVERLAP = ("skip", "allow", "buffer_one", "cancel_previous")
"""What a nominal time does while something that an earlier one started still runs: nothing; start beside it; start once
it has ended (one waits at most); ask it to cancel and start once it has ended."""
MISFIRE = ("once", "skip", "all")
"""What becomes of nominal times that nobody served: one firing for the latest; none if that is too late; all."""

MAX_ID = 180  #: bytes: with a nominal time, or a request id of 64, it is a key of 255
KEPT = 10  #: firings, and things that run, that a schedule remembers
STARTED = "started"
BUFFERED = "buffered"


class TaskAction(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="starts", tag="task"):
    """Enqueue a task."""

    type: str
    payload: Payloads = ()
    queue: str = "default"
    app: str = "default"
    priority: int = 3
    fairness_key: str = ""
    concurrency_key: str = ""
    weight: int = 1
    retry: RetryPolicy | None = None
    timeouts: Timeouts | None = None
    headers: dict[str, str] = {}
    identity: str = ""


class WorkflowAction(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="starts", tag="workflow"):
    """Start a workflow whose id is `workflow_id` and the nominal time."""

    type: str
    workflow_id: str
    input: Payloads = ()
    queue: str = "default"
    execution_timeout: float | None = None
    run_timeout: float | None = None
    retry: RetryPolicy | None = None
    priority: int = 3
    fairness_key: str = ""
    headers: dict[str, str] = {}
    memo: dict[str, Payloads] = {}
    search_attributes: dict[str, Any] = {}
    identity: str = ""


Action = TaskAction | WorkflowAction


class Definition(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What its owner said. Lengths are microseconds."""

    timing: Timing
    action: Action
    overlap: str = "skip"
    misfire: str = "once"
    window: int | None = None  #: how late a nominal time may still fire; None: what the misfire policy has
    remaining: int | None = None  #: how often it fires


_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


def digest(definition: Definition) -> bytes:
    """What two definitions have in common that say the same, whoever said it."""
    nobody = replace(definition, action=replace(definition.action, identity=""))
    return hashlib.blake2b(_canonical(nobody), digest_size=16).digest()


class Ran(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """What a firing started; of a workflow the first run of its id."""

    task_id: bytes
    workflow_id: str = ""


class Firing(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """What became of a nominal time: STARTED, BUFFERED, or why nothing was started."""

    scheduled_at: int
    at: int
    outcome: str
    task_id: bytes = b""
    workflow_id: str = ""


class Start(msgspec.Struct, frozen=True):
    """One thing that a schedule is about to start. `key` is the text of its firing's key."""

    scheduled_at: int
    key: str
    task_id: bytes
    workflow_id: str = ""


class Standing(msgspec.Struct, omit_defaults=True, kw_only=True):
    """How it stands. `counts` counts outcomes; of nominal times that were missed it counts 1,000 at a time at most."""

    paused: bool = False
    note: str = ""
    next: int | None = None  #: the first nominal time that is not done with
    last: int = 0  #: the one before
    left: int | None = None  #: firings that remain
    buffered: int | None = None  #: a nominal time that waits for what runs
    backfills: list[tuple[int, int]] = []  #: first and last instant of ranges that are still to fire
    running: list[Ran] = []  #: what it started last, and what of it has not been seen to end
    recent: list[Firing] = []  #: newest first
    counts: dict[str, int] = {}
    completed: Ran | None = None  #: the last workflow that was seen to have completed


class Schedule(msgspec.Struct, kw_only=True):
    definition: Definition
    standing: Standing
