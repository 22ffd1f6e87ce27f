"""`ctx.parallel`: many calls at once. Few of them begin one by one; many of one @task are a group, which costs the run
three events, however many they are.

How calls begin is fixed by the history on replay, so the number from which on they are a group may change, and so may
code that was there before groups were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.core.durations import Duration
from perdure.core.errors import InvalidArgument
from perdure.core.events import ActivityTaskScheduled, GroupStarted
from perdure.core.group_events import CallResult
from perdure.core.limits import MAX_GROUP
from perdure.core.model import Failure, Payloads, RetryPolicy
from perdure.core.turn_commands import CancelGroup, ScheduleActivity, StartGroup
from perdure.sdk import calls, operations
from perdure.sdk.mint import mint_id
from perdure.sdk.operations import Handle, Operation
from perdure.sdk.task import Task
from perdure.sdk.waiting import Outcome
from perdure.sdk.workflow_errors import ActivityError, OperationError

if TYPE_CHECKING:
    from perdure.sdk.workflow_context import WorkflowContext

GROUP_FROM = 50
"""Calls of one @task from which on they are a group; with a window any number is."""
POLICIES = ("fail_fast", "collect")

_UNKNOWN = Failure(message="it did not say why", code="unknown")


class GroupHandle(Handle):
    """A group that was started. Its value is a list."""

    error = ActivityError

    def cancel(self) -> None:
        if not self.done and not self._pending.abandoned:
            self._pending.abandoned = True
            command = self._pending.command
            self._ctx.issue(CancelGroup(task_id=command.task_id, started_event_id=self._pending.event_id))

    def value(self) -> list[Any]:
        """In the order of the calls, errors in their places. Once."""
        outcome = self._pending.outcome
        assert outcome is not None
        if outcome.status != "completed":
            raise self.fault(outcome)
        found: list[Any] = [None] * self._pending.command.count
        for one in self._ctx.group_results(self._pending.event_id):
            found[one.index] = self._value(one)
        return found

    def _value(self, one: CallResult) -> Any:
        if one.status == "completed":
            return self._ctx.converter.from_payloads(one.result, "result", self._result)
        return ActivityError(f"{self._what}[{one.index}]", one.failure or _UNKNOWN, one.retry_state)

    def fault(self, outcome: Outcome) -> OperationError:
        failed: Any = None if outcome.event is None else outcome.event.attributes
        which = "" if failed is None else f"[{failed.index}]"
        retry_state = "" if failed is None else failed.retry_state
        return ActivityError(f"{self._what}{which}", outcome.failure or _UNKNOWN, retry_state)


def parallel(
    ctx: WorkflowContext,
    name: str,
    branches: Sequence[tuple[Any, ...]],
    policy: str,
    retries: RetryPolicy | int | None,
    timeout: Duration | None,
    window: int | None,
) -> Operation[list[Any]]:
    """The arguments are checked at once, and nothing begins before the operation runs."""
    if policy not in POLICIES:
        raise InvalidArgument(f"policy is {policy!r}", field="policy", limit='"fail_fast" or "collect"')
    return _Branches(ctx, name, branches, policy, retries, timeout, window).run()


class _Branches:
    """Those of one `parallel`."""

    def __init__(
        self,
        ctx: WorkflowContext,
        name: str,
        branches: Sequence[tuple[Any, ...]],
        policy: str,
        retries: RetryPolicy | int | None,
        timeout: Duration | None,
        window: int | None,
    ) -> None:
        self._ctx = ctx
        self._name = name
        self._branches = branches
        self._policy = policy
        self._retries = retries
        self._timeout = timeout
        self._window = window or 0
        self._places: defaultdict[str, list[int]] = defaultdict(list)  #: of the calls of each @task
        for index, branch in enumerate(branches):
            if (task := _task_of(branch)) is not None:
                self._places[task.name].append(index)
        if window is not None:
            _check_window(window, len(branches), self._places)
        self._likes = {task: self._like(places) for task, places in self._places.items() if self._is_many(places)}
        self._alone = {
            index: self._single(index)
            for index, branch in enumerate(branches)
            if (task := _task_of(branch)) is None or task.name not in self._likes
        }
        self._parts: list[tuple[Handle, Sequence[int]]] = []  #: what was begun, and the places of its results

    def _is_many(self, places: Sequence[int]) -> bool:
        if len(places) > MAX_GROUP:
            text = f"{self._name} has {len(places)} calls of one task"
            raise InvalidArgument(text, field="branches", limit=f"{MAX_GROUP} calls of one task")
        return self._window > 0 or len(places) >= GROUP_FROM

    def _single(self, index: int) -> Callable[[], Handle]:
        name, branch = f"{self._name}[{index}]", self._branches[index]
        return calls.branch(self._ctx, name, branch, self._retries, self._timeout)

    def _like(self, places: Sequence[int]) -> ScheduleActivity:
        """What the first of these calls would be by itself; of the others the payloads are looked at."""
        task: Task[..., Any] = self._branches[places[0]][0]
        payloads = self._payloads(places)
        times = (None, self._timeout, None, None)
        return calls.scheduled(self._ctx, task, payloads[0], times, self._retries, None, None, "")

    def _payloads(self, places: Sequence[int]) -> list[Any]:
        return [calls.payload_of(f"{self._name}[{place}]", self._branches[place]) for place in places]

    def run(self) -> Operation[list[Any]]:
        """The results, all in their places."""
        values = yield from operations.parallel(self._begin, self._policy == "collect")
        found: list[Any] = [None] * len(self._branches)
        for (handle, places), value in zip(self._parts, values, strict=True):
            for place, one in zip(places, value if isinstance(handle, GroupHandle) else [value], strict=True):
                found[place] = one
        return found

    def _begin(self) -> list[Handle]:
        """In the order of the branches. Whether calls of a @task are a group is decided at the first of them."""
        together: dict[str, bool] = {}
        for index, branch in enumerate(self._branches):
            task = _task_of(branch)
            if task is not None and task.name not in together:
                recorded = type(self._ctx.recorded_next())
                many = task.name in self._likes and recorded is not ActivityTaskScheduled
                together[task.name] = many or recorded is GroupStarted
                if together[task.name]:
                    self._parts.append(self._group(task, self._places[task.name], recorded is GroupStarted))
            if task is None or not together[task.name]:
                begin = self._alone.get(index) or self._single(index)
                self._parts.append((begin(), (index,)))
        return [handle for handle, _ in self._parts]

    def _group(self, task: Task[..., Any], places: Sequence[int], recorded: bool) -> tuple[Handle, Sequence[int]]:
        ctx, like = self._ctx, self._likes.get(task.name) or self._like(places)
        inputs: list[Payloads] = [()] * len(places)  # on replay nobody looks at them
        if not recorded:
            inputs = [ctx.converter.to_payloads(one, "payload", task.payload) for one in self._payloads(places)]
        command = StartGroup(
            task_id=mint_id(),
            group_id=f"{self._name}#{ctx.number(f'group {self._name}')}",
            activity_type=like.activity_type,
            task_queue=like.task_queue,
            inputs=inputs,
            schedule_to_start=like.schedule_to_start,
            start_to_close=like.start_to_close,
            schedule_to_close=like.schedule_to_close,
            heartbeat=like.heartbeat,
            retry=like.retry,
            priority=like.priority,
            weight=like.weight,
            policy=self._policy,
            window=self._window,
        )
        return GroupHandle(ctx, ctx.issue(command), task.result, f"activity {task.name}"), places


def _task_of(branch: object) -> Task[..., Any] | None:
    return branch[0] if isinstance(branch, tuple) and branch and isinstance(branch[0], Task) else None


def _check_window(window: int, count: int, places: Mapping[str, list[int]]) -> None:
    if isinstance(window, bool) or not isinstance(window, int) or not 1 <= window <= MAX_GROUP:
        kind = type(window).__name__
        raise InvalidArgument(f"window is {window!r}", field="window", limit=f"1 to {MAX_GROUP}", kind=kind)
    if [len(found) for found in places.values()] != ([count] if count else []):
        raise InvalidArgument("a window is for calls of one @task", field="window", limit="branches of one @task")
