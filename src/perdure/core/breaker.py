"""The circuit breaker of a task type: when its attempts keep failing, no more of them start for a while.

    CLOSED     everything starts; endings are counted
    OPEN       nothing starts until the cool-down is over
    HALF_OPEN  some probes start, and how they end decides

It opens after so many crashes in a row, or when too large a part of the attempts failed that ended lately. A crash is
an attempt whose worker, or whose process, was lost; the death of one worker counts once, whatever it had in hand. An
attempt that ended in another way shows that its worker lived, and ends the row.

An attempt that began before the state last changed says nothing about it. Probes are looked up in their rows whenever
somebody wants to start another one, so none can be forgotten; what ends without a verdict (canceled, handed back) just
makes room for the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum, StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.core.errors import IllegalMove
from perdure.core.limits import MAX_CRASHES
from perdure.core.model import SECOND, Failure, Task, unpack
from perdure.core.states import Kind, State


class Stage(IntEnum):
    """Where a breaker is; the head of this module says what each means."""

    CLOSED = 1
    OPEN = 2
    HALF_OPEN = 3


class Cause(StrEnum):
    """Why a breaker moves."""

    TRIP = "trip"  #: too many crashes in a row, or too many failures
    PROBE = "probe"  #: the first probe starts
    RELAPSE = "relapse"  #: a probe failed
    RECOVER = "recover"  #: all probes succeeded
    FORCE = "force"  #: somebody opens it
    RESET = "reset"  #: somebody closes it


MOVES: dict[tuple[Stage, Cause], Stage] = {
    (Stage.CLOSED, Cause.TRIP): Stage.OPEN,
    (Stage.OPEN, Cause.PROBE): Stage.HALF_OPEN,
    (Stage.HALF_OPEN, Cause.RELAPSE): Stage.OPEN,
    (Stage.HALF_OPEN, Cause.RECOVER): Stage.CLOSED,
    **{(stage, Cause.FORCE): Stage.OPEN for stage in Stage},
    **{(stage, Cause.RESET): Stage.CLOSED for stage in Stage},
}
"""All that may happen."""

PARTS = 10
"""The window of the failure rate slides in so many parts."""
CRASHES = ("lease_lost", "process_died")
"""Codes of failures that nobody but a survivor reported."""

Probe = tuple[bytes, int]
"""(Task, lease number) of an attempt that was let through."""


class Circuit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A breaker as it is stored: what opens it, and how it stands. Times are microseconds."""

    crashes: int | None  #: in a row that open it
    failure_rate: float | None  #: part of the attempts that ended in the window; opens it as well
    window: int
    min_attempts: int  #: that must have ended before the rate says anything
    cool_down: int
    probes: int  #: at once; all of them must succeed
    stage: Stage = Stage.CLOSED
    since: int = 0
    until: int = 0  #: end of the cool-down
    reason: str = ""  #: of the last move
    in_a_row: int = 0  #: crashes
    dead: tuple[int, ...] = ()  #: worker processes that these were
    parts: tuple[tuple[int, int, int], ...] = ()  #: of the window: (number, attempts that ended, that failed)
    probing: tuple[Probe, ...] = ()
    passed: int = 0  #: probes that succeeded

    @property
    def settings(self) -> tuple[object, ...]:
        return (
            self.crashes, self.failure_rate, self.window, self.min_attempts, self.cool_down, self.probes,
        )  # fmt: skip

    def moved(self, before: Circuit) -> bool:
        """Whether it changed its state since."""
        return (self.stage, self.since) != (before.stage, before.since)


class Verdict(IntEnum):
    SUCCEEDED = 1
    FAILED = 2
    CRASHED = 3


class Ending(NamedTuple):
    """What the end of an attempt says about its type."""

    verdict: Verdict
    started_at: int
    session: int | None = None  #: the worker process that was lost with it


def ending(before: Task, after: Task) -> Ending | None:
    """The ending of an attempt whose lease has just ended; None: it spent none, or was canceled, or is a turn."""
    if before.kind not in (Kind.JOB, Kind.ACTIVITY):
        return None
    started_at = before.attempt_started_at or 0
    if after.state == State.SUCCEEDED:
        return Ending(Verdict.SUCCEEDED, started_at)
    if after.attempt == before.attempt or after.state == State.CANCELED:
        return None
    code = ""
    if after.failure is not None:
        with suppress(msgspec.DecodeError):  # another version wrote it: it failed, whatever it says
            code = unpack(after.failure, Failure).code
    if code not in CRASHES:
        return Ending(Verdict.FAILED, started_at)
    return Ending(Verdict.CRASHED, started_at, before.session if code == "lease_lost" else None)


def judge(circuit: Circuit, endings: Iterable[Ending], now: int) -> Circuit:
    """The breaker after attempts have ended, in order."""
    for one in endings:
        if one.started_at < circuit.since:
            continue
        if circuit.stage is Stage.CLOSED:
            circuit = _count(circuit, one, now)
        elif circuit.stage is Stage.HALF_OPEN:
            circuit = _weigh(circuit, one, now)
    return circuit


def _count(circuit: Circuit, one: Ending, now: int) -> Circuit:
    in_a_row, dead = 0, tuple[int, ...]()
    if one.verdict is Verdict.CRASHED:
        if one.session is not None and one.session in circuit.dead:
            return circuit
        in_a_row = circuit.in_a_row + 1
        dead = circuit.dead if one.session is None else (*circuit.dead, one.session)[-MAX_CRASHES:]
    parts = circuit.parts if circuit.failure_rate is None else _slide(circuit, one, now)
    circuit = replace(circuit, in_a_row=in_a_row, dead=dead, parts=parts)
    reason = _too_much(circuit)
    return circuit if reason is None else _move(circuit, Cause.TRIP, now, reason)


def _slide(circuit: Circuit, one: Ending, now: int) -> tuple[tuple[int, int, int], ...]:
    """The parts of the window that are not over, with one more attempt."""
    number = now // max(1, circuit.window // PARTS)
    kept = {part: (ended, failed) for part, ended, failed in circuit.parts if part > number - PARTS}
    ended, failed = kept.get(number, (0, 0))
    kept[number] = (ended + 1, failed + (one.verdict is not Verdict.SUCCEEDED))
    return tuple((part, *counts) for part, counts in sorted(kept.items()))


def lately(circuit: Circuit) -> tuple[int, int]:
    """Attempts that ended within the window, as of the last one, and that failed of these."""
    return sum(ended for _, ended, _ in circuit.parts), sum(failed for _, _, failed in circuit.parts)


def _too_much(circuit: Circuit) -> str | None:
    """Why it opens."""
    if circuit.crashes is not None and circuit.in_a_row >= circuit.crashes:
        return "a crash" if circuit.in_a_row == 1 else f"{circuit.in_a_row} crashes in a row"
    ended, failed = lately(circuit)
    if circuit.failure_rate is not None and ended >= circuit.min_attempts and failed >= circuit.failure_rate * ended:
        return f"{failed} of {ended} attempts failed within {circuit.window / SECOND:g} s"
    return None


def _weigh(circuit: Circuit, one: Ending, now: int) -> Circuit:
    """A probe has ended."""
    if one.verdict is not Verdict.SUCCEEDED:
        word = "crashed" if one.verdict is Verdict.CRASHED else "failed"
        return _move(circuit, Cause.RELAPSE, now, f"a probe {word}")
    if circuit.passed + 1 < circuit.probes:
        return replace(circuit, passed=circuit.passed + 1)
    words = "a probe" if circuit.probes == 1 else f"{circuit.probes} probes"
    return _move(circuit, Cause.RECOVER, now, f"{words} succeeded")


def free(circuit: Circuit, running: int, now: int) -> int:
    """How many attempts may start under a breaker that is not closed, while so many probes run."""
    if circuit.stage is Stage.OPEN:
        return circuit.probes if now >= circuit.until else 0
    return max(0, circuit.probes - circuit.passed - running)


def probe(circuit: Circuit, running: Sequence[Probe], started: Sequence[Probe], now: int) -> Circuit:
    """Attempts have started that `free` allowed, while others ran."""
    if circuit.stage is Stage.OPEN:
        circuit = _move(circuit, Cause.PROBE, now, circuit.reason)
    return replace(circuit, probing=(*running, *started))


def switch(circuit: Circuit, open_: bool, note: str, now: int) -> Circuit:
    """Somebody opens it, for a cool-down from now on, or closes it."""
    by_hand = f"by hand: {note}" if note else "by hand"
    return _move(circuit, Cause.FORCE if open_ else Cause.RESET, now, by_hand)


def configured(known: Circuit | None, wanted: Circuit | None) -> Circuit | None:
    """`wanted` with the state that the breaker has."""
    if known is None or wanted is None:
        return wanted
    until = known.since + wanted.cool_down if known.stage is Stage.OPEN else 0
    parts = known.parts if known.window == wanted.window else ()
    passed = min(known.passed, wanted.probes - 1)  # closing takes the success of one more, whatever is wanted now
    return replace(
        wanted, stage=known.stage, since=known.since, until=until, reason=known.reason, in_a_row=known.in_a_row,
        dead=known.dead, parts=parts, probing=known.probing, passed=passed,
    )  # fmt: skip


def _move(circuit: Circuit, cause: Cause, now: int, reason: str) -> Circuit:
    """Every state begins with nothing counted."""
    stage = MOVES.get((circuit.stage, cause))
    if stage is None:
        raise IllegalMove(f"a breaker that is {circuit.stage.name} does not {cause}")
    until = now + circuit.cool_down if stage is Stage.OPEN else 0
    return replace(
        circuit, stage=stage, since=now, until=until, reason=reason, in_a_row=0, dead=(), parts=(), probing=(),
        passed=0,
    )  # fmt: skip
