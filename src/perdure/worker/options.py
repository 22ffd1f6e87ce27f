"""How a worker works."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from perdure.core.errors import InvalidArgument
from perdure.sdk.definition import Workflow
from perdure.sdk.task import Task
from perdure.worker.process import Lifeline


class WorkerOptions(TypedDict, total=False):
    """What can be said about a worker, with the defaults."""

    queues: Sequence[str] | None  #: what it polls, the first first; None is "default" and all that its tasks declare
    slots: int  #: handlers at once, 100
    tasks: Iterable[Task[..., Any]] | None  #: what it runs; None is every @task of the process
    workflows: Iterable[Workflow] | None  #: the same of every @workflow
    identity: str  #: its name for people; host and process id
    incarnation: int  #: tells processes apart; a new random number
    drain_seconds: float  #: how long handlers may go on once it leaves, 25
    process_slots: int | None  #: handlers of @task(process=True) at once, each in a process; None is one a core
    deadlock_seconds: float  #: how long workflow code may compute between two waits, 2
    max_tasks: int | None  #: it leaves after so many, and each process of a handler too; None is no limit
    max_memory: int | None  #: bytes; it leaves when its process has more, and each process of a handler too
    build: str  #: version of the code, for people
    lifeline: Lifeline | None  #: to a supervisor that replaces its process when that is worn


def positive(name: str, value: int) -> int:
    """`value`; InvalidArgument names the field when it is not above zero."""
    if value < 1:
        raise InvalidArgument(f"{name} is {value}", field=name, limit="1 and more", kind="int")
    return value


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
