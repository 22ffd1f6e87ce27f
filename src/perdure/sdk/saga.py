"""Sagas: what was done is undone in reverse order when something fails later on.

    saga = ctx.saga()
    try:
        saga.add_compensation(cancel_flight, booking)   # before the action, when its outcome may stay unknown (SAGA-14)
        await ctx.step("book_flight", book_flight, booking)
        ...
        saga.pivot()                                    # from here on there is only forward
    except Exception:
        outcome = await saga.compensate()
        raise

Compensations are tried on their own; one that fails for good is recorded and the others go on (SAGA-02). They run to
their end also when the workflow is canceled meanwhile (SAGA-15).

What is to be undone, and what could not be, is said by a search attribute of the run (core/compensations.py), so a run
that ends without having been undone is found whatever ended it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core.compensations import ATTRIBUTE, FAILED, NOTHING, PENDING
from perdure.core.durations import Duration
from perdure.core.model import Failure, RetryPolicy
from perdure.sdk import calls
from perdure.sdk.operations import Operation
from perdure.sdk.task import Task
from perdure.sdk.workflow_errors import OperationError

if TYPE_CHECKING:
    from perdure.sdk.workflow_context import WorkflowContext

COMPENSATION_RETRY = RetryPolicy(max_attempts=3, delays=(2.0,))
"""Three attempts, 2 seconds apart."""


class Compensation(msgspec.Struct, omit_defaults=True):
    """What became of a compensation. It can be returned by a workflow as it is."""

    name: str
    arguments: list[Any]
    error: str = ""  #: of the last attempt; empty: it succeeded
    attempts: int = 0  #: that were allowed, when it failed


class SagaOutcome(msgspec.Struct, omit_defaults=True):
    """Of `compensate`, in the order in which they ran: the last added first."""

    compensations_succeeded: list[Compensation] = []
    compensations_failed: list[Compensation] = []

    @property
    def requires_manual_intervention(self) -> bool:
        """Whether people have to do what could not be undone."""
        return bool(self.compensations_failed)


class PivotPassedError(Exception):
    """The saga is past its pivot: what it did must be brought to its end, not undone (SAGA-08)."""


class _Entry(msgspec.Struct):
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    retry: RetryPolicy
    timeout: Duration | None


class Saga:
    """The compensations of one run; made by `ctx.saga()`."""

    def __init__(self, ctx: WorkflowContext) -> None:
        self._ctx = ctx
        self._entries: list[_Entry] = []
        self._pivoted = False
        self._owes = NOTHING

    def add_compensation(
        self,
        function: Callable[..., Any],
        *args: Any,
        name: str = "",
        retries: RetryPolicy | int = COMPENSATION_RETRY,
        timeout: Duration | None = None,
    ) -> None:
        """Undo with `function(*args)`: a plain function runs as a step, a @task as an activity. It must be idempotent,
        and do nothing where there is nothing to undo. `retries` is 3 attempts, 2 s apart, by default."""
        known = name or (function.name if isinstance(function, Task) else getattr(function, "__name__", "compensation"))
        retry = RetryPolicy(max_attempts=retries + 1, delays=(2.0,)) if isinstance(retries, int) else retries
        self._entries.append(_Entry(known, function, args, retry, timeout))
        if not self._pivoted and self._owes == NOTHING:
            self._owe(PENDING)

    def pivot(self) -> None:
        """What was done so far stands: `compensate` is refused from now on."""
        self._pivoted = True
        self._entries.clear()
        self._owe(NOTHING)

    def compensate(self) -> Any:
        """Waits until all compensations have run, the last added first; gives a SagaOutcome. A second call runs those
        that failed in the first one: for another pass, hours later (SAGA-05). Raises PivotPassedError after `pivot`."""
        return self._ctx._wait(self._compensate())

    def _compensate(self) -> Operation[SagaOutcome]:
        if self._pivoted:
            raise PivotPassedError("the saga is past its pivot: retry what is left of it instead")
        outcome = SagaOutcome([], [])
        failed: list[_Entry] = []
        with self._ctx.shielded():
            for entry in reversed(self._entries):
                record = Compensation(entry.name, list(entry.args))
                failure = yield from self._undo(entry)
                if failure is None:
                    outcome.compensations_succeeded.append(record)
                    continue
                record.error = f"{failure.type}: {failure.message}" if failure.type else failure.message
                record.attempts = entry.retry.max_attempts
                outcome.compensations_failed.append(record)
                failed.insert(0, entry)
                self._ctx.logger.error("compensation %s failed: %s", entry.name, record.error)
        self._entries = failed
        self._owe(FAILED if failed else NOTHING)
        return outcome

    def _owe(self, what: str) -> None:
        """The run says the worst of what its sagas owe. One that began before sagas did so does not on replay."""
        ctx, counts = self._ctx, self._ctx.sagas
        counts[self._owes] -= 1
        counts[what] += 1
        self._owes = what
        worst = next((one for one in (FAILED, PENDING) if counts[one] > 0), NOTHING)
        if ctx.search_attributes.get(ATTRIBUTE, NOTHING) == worst:
            return
        said = {ATTRIBUTE: worst}
        if not ctx.is_replaying or getattr(ctx.recorded_next(), "search_attributes", None) == said:
            ctx.upsert_search_attributes(said)

    def _undo(self, entry: _Entry) -> Operation[Failure | None]:
        handle = calls.branch(self._ctx, entry.name, (entry.function, *entry.args), entry.retry, entry.timeout)()
        try:
            yield from handle.waiting()
        except OperationError as error:
            return error.failure
        return None
