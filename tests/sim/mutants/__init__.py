"""Known ways to break the engine. Each is a context manager that puts one mistake into the running code; the simulation
must find every one of them, or it is too weak."""

# Each of these modules registers its own as it is imported.
from tests.sim.mutants import (  # noqa: F401
    alarms,
    bulk,
    commits,
    ends,
    events,
    fence,
    findings,
    flows,
    groups,
    keys,
    limits,
    locks,
    polls,
    repeats,
    schedules,
    sessions,
    turns,
    views,
    workers,
)
from tests.sim.mutants.registry import FOUND_AT, MUTANTS, find, likely, note

__all__ = ["FOUND_AT", "MUTANTS", "find", "likely", "note"]
