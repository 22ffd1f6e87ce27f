"""`ctx` of a workflow: everything that its code may ask for.

The same methods serve both styles. Those that say "waits" give something to await in `async def`, and return when it is
there in `def`. The others answer at once and are not awaited. Code may only ask for the time, for randomness and for
the world through here, so that it does the same again on replay (RPLY-01).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from random import Random
from typing import Any, NoReturn
from uuid import UUID

from perdure.core.durations import Duration
from perdure.core.errors import InvalidArgument
from perdure.core.model import Payloads, RetryPolicy
from perdure.core.turn_commands import (
    CancelExternalWorkflow,
    ContinueAsNew,
    KeptSignal,
    ModifyProperties,
    RecordMarker,
    SignalExternalWorkflow,
    UpsertSearchAttributes,
)
from perdure.sdk import calls, groups, operations
from perdure.sdk.definition import AnyWorkflow, Workflow, named
from perdure.sdk.handlers import Handler
from perdure.sdk.mint import mint_id
from perdure.sdk.operations import ActivityHandle, Handle, Operation
from perdure.sdk.run_state import RunState
from perdure.sdk.saga import Saga
from perdure.sdk.task import Task
from perdure.sdk.waiting import Wait
from perdure.sdk.workflow_errors import ContinuedAsNew, NonDeterminismError
from perdure.sdk.workflow_info import moment

CURRENT: ContextVar[WorkflowContext | None] = ContextVar("perdure_workflow", default=None)
"""The ctx of the workflow whose code is running here."""

Span = Duration | timedelta
"""Seconds, text such as "3d", or a timedelta."""


class WorkflowContext(RunState):
    """One run, as its code sees it. `info` says who it is; `logger` is silent on replay."""

    # ------------------------------------------------------------------------------------------- steps and activities
    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retries: RetryPolicy | int | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Waits for `function(*args)`, which runs once in this worker, and may do anything; its result is recorded. A
        @task gets a ctx of its own before its payload.

        `retries` is a RetryPolicy, or how many attempts may follow the first one: 4 by default, or what the @task
        says. `timeout` is for one attempt. Raises StepError when no attempt is left. A worker that dies leaves an
        attempt of which nobody knows; another one follows it, whatever `retries` says, and sees its number.
        """
        if not callable(function):
            raise InvalidArgument(f"step {name!r} has nothing to call", field="function", kind=type(function).__name__)
        begin = calls.step(self, name, function, args, retries, timeout)
        return self._wait(operations.result_of(begin))

    def execute_activity(
        self,
        task: Task[..., Any] | str,
        payload: Any = None,
        *,
        start_to_close: Duration | None = None,
        schedule_to_start: Duration | None = None,
        schedule_to_close: Duration | None = None,
        heartbeat: Duration | None = None,
        retries: RetryPolicy | int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        concurrency_key: str = "",
        weight: int | None = None,
        activity_id: str = "",
        local: bool = False,
    ) -> Any:
        """Waits for a task that a worker of `queue` runs, and gives its result. What is not said is as the @task says.
        `concurrency_key` ("name:value") and `weight` are those of limits.

        `local=True` runs it in this worker, as a step: no queue, no heartbeats, for short ones. Raises ActivityError
        once it has failed for good. A cancel of the workflow cancels it, and does not wait for its end.
        """
        if local:
            if not isinstance(task, Task):
                raise InvalidArgument("a local activity must be a @task", field="task", kind=type(task).__name__)
            begin: Callable[[], Handle] = calls.step(self, task.name, task, (payload,), retries, start_to_close)
            return self._wait(operations.result_of(begin))
        times, counted = (schedule_to_start, start_to_close, schedule_to_close, heartbeat), (concurrency_key, weight)
        begin = calls.activity(self, task, payload, times, retries, queue, priority, activity_id, counted)
        return self._wait(operations.result_of(begin))

    def start_activity(
        self,
        task: Task[..., Any] | str,
        payload: Any = None,
        *,
        start_to_close: Duration | None = None,
        schedule_to_start: Duration | None = None,
        schedule_to_close: Duration | None = None,
        heartbeat: Duration | None = None,
        retries: RetryPolicy | int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        concurrency_key: str = "",
        weight: int | None = None,
        activity_id: str = "",
    ) -> ActivityHandle:
        """Begin an activity and go on; the handle gives its result later."""
        times, counted = (schedule_to_start, start_to_close, schedule_to_close, heartbeat), (concurrency_key, weight)
        return calls.activity(self, task, payload, times, retries, queue, priority, activity_id, counted)()

    def parallel(
        self,
        name: str,
        branches: Sequence[tuple[Any, ...]],
        *,
        policy: str = "fail_fast",
        retries: RetryPolicy | int | None = None,
        timeout: Duration | None = None,
        window: int | None = None,
    ) -> Any:
        """Waits for all of `(function, *args)` at once; gives a list of their results in the order given.

        A plain function is a step here, a @task is an activity in its queue; 50 calls of one @task or more are a group,
        which costs the history three events. "fail_fast" raises the first error and cancels the rest; "collect" has
        errors in their places in the list. With `window`, at most so many calls of the one @task are queued or run at a
        time.
        """
        return self._wait(groups.parallel(self, name, branches, policy, retries, timeout, window))

    def map(
        self,
        name: str,
        task: Task[..., Any],
        payloads: Iterable[Any],
        *,
        policy: str = "fail_fast",
        retries: RetryPolicy | int | None = None,
        timeout: Duration | None = None,
        window: int | None = None,
    ) -> Any:
        """`parallel` of one @task: waits for `task(payload)` of all payloads, up to 100,000."""
        branches = [(task, payload) for payload in payloads]
        return self._wait(groups.parallel(self, name, branches, policy, retries, timeout, window))

    # ---------------------------------------------------------------------------------------------------------- time
    def now(self) -> datetime:
        """The time at which this turn began, in UTC."""
        return moment(self._machine.now)

    def sleep(
        self,
        *name_or_duration: Span,
        seconds: float = 0,
        minutes: float = 0,
        hours: float = 0,
        days: float = 0,
    ) -> Any:
        """Waits: `sleep(30)`, `sleep("3d")`, `sleep("cool_off", days=1)`, `sleep("cool_off", "1d")`. A sleep costs a
        row, however long it is (ten years at most)."""
        name, length = calls.sleep_of(name_or_duration, seconds + 60 * minutes + 3600 * hours + 86_400 * days)
        return self._wait(operations.sleep(self, length, name))

    def wait_condition(self, condition: Callable[[], object], timeout: Span | None = None) -> Any:
        """Waits until `condition()` is true, as signals and updates may make it; False when the time is over first."""
        return self._wait(self._condition(condition, calls.span(timeout, "timeout")))

    def _condition(self, condition: Callable[[], object], timeout: float | None) -> Operation[bool]:
        if condition():
            return True
        wait = Wait()
        entry = (condition, wait)
        self._conditions.append(entry)
        met = yield from operations.within(self, wait, timeout, lambda: self._forget(entry))
        if isinstance(wait.value, Exception):
            raise wait.value
        return met

    def _forget(self, entry: tuple[Callable[[], object], Wait]) -> None:
        if entry in self._conditions:
            self._conditions.remove(entry)

    # ------------------------------------------------------------------------------------------------------ messages
    def wait_for_signal(self, name: str, timeout: Span | None = None) -> Any:
        """Waits for the next signal of this name, and gives its value: True for one without a value, None when the time
        is over. One that came earlier and was not asked for counts."""
        return self._wait(self._signal(name, calls.span(timeout, "timeout")))

    wait_for_event = wait_for_signal

    def _signal(self, name: str, timeout: float | None) -> Operation[Any]:
        wait = self.handlers.next_signal(name)
        heard = yield from operations.within(self, wait, timeout, lambda: self.handlers.give_up(name, wait))
        return wait.value[0] if heard else None

    def on_signal(self, name: str, function: Callable[..., Any]) -> None:
        """From now on signals of this name go to `function(value)`, those kept until now first."""
        self.handlers.on_signal(Handler.of(name, function))

    def on_query(self, name: str, function: Callable[..., Any]) -> None:
        """`function(value)` answers queries of this name; it changes nothing."""
        self.handlers.queries[name] = Handler.of(name, function)

    def on_update(self, name: str, function: Callable[..., Any], validator: Callable[..., Any] | None = None) -> None:
        """`function(value)` answers updates of this name; `validator(value)` may reject one by raising, and changes
        nothing. Register it before the code waits for the first time."""
        self.handlers.updates[name] = Handler.of(name, function, validator)

    def all_handlers_finished(self) -> bool:
        """Whether no handler of a signal or an update is still running. A run that ends before has its callers told so:
        `wait_condition(ctx.all_handlers_finished)`."""
        return not self.handlers.unfinished

    # ----------------------------------------------------------------------------------------------- other workflows
    def signal_workflow(self, workflow_id: str, name: str, payload: Any = None, run_id: str | None = None) -> Any:
        """Waits until the signal is in the inbox of that run, the current one if none is named. Raises
        ExternalWorkflowError when there is no open run."""
        command = SignalExternalWorkflow(
            task_id=mint_id(),
            workflow_id=workflow_id,
            run_id=calls.run_id(run_id),
            signal_name=name,
            input=self.converter.to_payloads(payload, "payload"),
        )
        return self._wait(operations.tell(self, command, f"signal {name!r} to workflow {workflow_id!r}"))

    def cancel_workflow(self, workflow_id: str, run_id: str | None = None, reason: str = "") -> Any:
        """Waits until that run has been asked to end. Raises ExternalWorkflowError when there is no open run."""
        command = CancelExternalWorkflow(
            task_id=mint_id(), workflow_id=workflow_id, run_id=calls.run_id(run_id), reason=reason
        )
        return self._wait(operations.tell(self, command, f"cancel of workflow {workflow_id!r}"))

    def start_child(self, target: AnyWorkflow, payload: Any = None, **options: Any) -> Any:
        """Waits until a child workflow has started; gives its handle. Options as of `execute_child`."""
        return self._wait(operations.child_started(calls.child(self, target, payload, **options)))

    def execute_child(self, target: AnyWorkflow, payload: Any = None, **options: Any) -> Any:
        """Waits for the result of a child workflow.

        Options: `workflow_id` (made up if not given), `queue`, `parent_close_policy` ("terminate", "request_cancel",
        "abandon": what becomes of it when this run closes), `execution_timeout`, `run_timeout`, `retries`, `cron`,
        `id_reuse`, `memo`, `search_attributes`. A cancel of this run is passed on unless the policy is "abandon".
        Raises ChildWorkflowError.
        """
        return self._wait(operations.child_result(calls.child(self, target, payload, **options)))

    def continue_as_new(
        self,
        payload: Any = None,
        *,
        workflow: AnyWorkflow | None = None,
        queue: str | None = None,
        run_timeout: Duration | None = None,
        memo: Mapping[str, Any] | None = None,
        search_attributes: Mapping[str, Any] | None = None,
    ) -> NoReturn:
        """End this run here, and go on with a new one of the same workflow id, with a fresh history and this payload.
        Messages that this run has not seen go along, and signals that its code has not asked for (by name, those of
        one name in their order). Never returns."""
        hint = workflow.payload if isinstance(workflow, Workflow) else self.own_payload
        command = ContinueAsNew(
            task_id=mint_id(),
            workflow_type="" if workflow is None else named(workflow),
            task_queue=queue or "",
            input=self.converter.to_payloads(payload, "payload", hint),
            run_timeout=calls.span(run_timeout, "run_timeout"),
            memo=None if memo is None else self._memo(memo),
            search_attributes=None if search_attributes is None else dict(search_attributes),
            signals=tuple(
                KeptSignal(name, self.converter.to_payloads(value, "signal")) for name, value in self.handlers.kept()
            ),
        )
        raise ContinuedAsNew(command)

    # ------------------------------------------------------------------------------------- values that must not change
    def side_effect(self, function: Callable[[], Any]) -> Any:
        """What `function()` returned the first time. It runs in the code's own thread: for short things that cannot
        fail, such as reading a setting; the rest belongs in a step."""
        machine = self._machine
        if machine.replaying or machine.read_only:
            recorded: Any = self.issue(RecordMarker(marker_name="side_effect")).recorded
            payloads: Payloads = recorded.attributes.details["value"]
        else:
            payloads = self.converter.to_payloads(function(), "value")
            self.issue(RecordMarker(marker_name="side_effect", details={"value": payloads}))
        return self.converter.from_payloads(payloads, "value")

    def random(self) -> Random:
        """A source of random numbers that gives the same ones on replay."""
        return self._random

    def uuid4(self) -> UUID:
        """A random UUID that is the same on replay."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def version(self, name: str, min: int = 0, max: int = 1) -> int:
        """Which version of a piece of code this run is to use: `max` when it comes here for the first time now, what it
        got then otherwise, and 0 for a run that was past this point before the question was in the code. The answer
        stays the same for the whole run. NonDeterminismError, which fails the turn, when it is not from `min` to `max`:
        the code for it is gone.
        """
        if name not in self._versions:
            self._versions[name] = self._machine.version(name, max) or 0
        found = self._versions[name]
        if not min <= found <= max:
            code = f"code for versions {min} to {max}"
            raise NonDeterminismError(self.activation, f"version {found} of {name!r}", code)
        return found

    def patched(self, id: str) -> bool:
        """True for runs that come here for the first time with this code, False for older ones: `if
        ctx.patched("fraud-check"): new() else: old()`."""
        return self.version(id) > 0

    def deprecate_patch(self, id: str) -> None:
        """Stands where `patched` stood once no run needs the old code; to be removed when those with the marker are
        gone, which is not needed for replay."""
        if id not in self._versions:
            self._versions[id] = self._machine.version(id, 1, deprecated=True) or 1

    # ------------------------------------------------------------------------------------------------------- the run
    @property
    def history_length(self) -> int:
        """Events so far. Continue as new well before 10,000."""
        return self.activation

    @property
    def memo(self) -> dict[str, Any]:
        """What people see beside the run."""
        return {key: self.converter.from_payloads(value, "memo") for key, value in self.memo_payloads.items()}

    def upsert_memo(self, memo: Mapping[str, Any]) -> None:
        """Set some keys of the memo."""
        added = self._memo(memo)
        self.issue(ModifyProperties(memo=added))
        self.memo_payloads.update(added)

    def upsert_search_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set some attributes by which runs can be found; None takes one away."""
        self.issue(UpsertSearchAttributes(search_attributes=dict(attributes)))
        merged = {**self.search_attributes, **attributes}
        self.search_attributes = {name: value for name, value in merged.items() if value is not None}

    def _memo(self, memo: Mapping[str, Any]) -> dict[str, Payloads]:
        return {key: self.converter.to_payloads(value, f"memo.{key}") for key, value in memo.items()}

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A cancel that comes in here is raised at the first wait after it: for clean-up that must not be torn."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if self._cancel_waits and not self._shields:
                self._cancel_waits = False
                self._deliver_cancel()

    def saga(self) -> Saga:
        """Compensations to be run if something fails later on."""
        return Saga(self)
