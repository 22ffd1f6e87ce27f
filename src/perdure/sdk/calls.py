"""What the arguments of `ctx` calls say: options, and the defaults that a @task or a @workflow declares.

Each function checks its arguments at once and returns what begins the call: in async code that is when it is awaited.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import WeakKeyDictionary

from perdure.core.durations import Duration, seconds
from perdure.core.errors import InvalidArgument
from perdure.core.messages import TRACE_HEADERS, TimeoutOptions
from perdure.core.model import DEFAULT_RETRY, RetryPolicy
from perdure.core.turn_commands import ScheduleActivity, StartChildWorkflow
from perdure.sdk import operations
from perdure.sdk.definition import AnyWorkflow, Workflow, named
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.mint import mint_id
from perdure.sdk.operations import ActivityHandle, ChildHandle, Handle, StepHandle
from perdure.sdk.retry import AfterError, retry_policy
from perdure.sdk.steps import StepCall
from perdure.sdk.task import Task, place
from perdure.sdk.workflow_info import Info

if TYPE_CHECKING:
    from perdure.sdk.workflow_context import WorkflowContext

POLICIES = ("terminate", "request_cancel", "abandon")

_RESULTS: WeakKeyDictionary[Callable[..., Any], Hint] = WeakKeyDictionary()
_NO_TIMES = TimeoutOptions()
_ANY_ERROR = AfterError()


def step(
    ctx: WorkflowContext,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    retries: RetryPolicy | int | None,
    timeout: Duration | None,
) -> Callable[[], StepHandle]:
    retry = DEFAULT_RETRY if retries is None else retry_policy(retries, "retries")
    limit = span(timeout, "timeout")
    after_error, result = _ANY_ERROR, ANY
    if isinstance(function, Task):
        after_error, result = function.after_error, function.result
        if retries is None and function.retry is not None:
            retry = function.retry
        if limit is None and function.timeouts is not None:
            limit = span(function.timeouts.start_to_close, "timeout")
    else:
        result = result_of(function)

    def begin() -> StepHandle:
        number, trace = ctx.number("step"), trace_of(ctx.info)
        call = StepCall(number, name, function, args, retry, after_error, limit, result, trace)
        return operations.claim(ctx, call)

    return begin


def result_of(function: Callable[..., Any]) -> Hint:
    """What a function is annotated to return."""
    try:
        return _RESULTS[function]
    except (KeyError, TypeError):  # TypeError: nothing that can be kept like this, such as a builtin
        hint = _read(function)
    try:
        _RESULTS[function] = hint
    except TypeError:
        return hint
    return hint


def _read(function: Callable[..., Any]) -> Hint:
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):  # a builtin says nothing about itself
        return ANY
    if annotation is inspect.Signature.empty:
        return ANY
    return Hint(annotation, getattr(inspect.unwrap(function), "__globals__", None), f"the result of {place(function)}")


def activity(
    ctx: WorkflowContext,
    task: Task[..., Any] | str,
    payload: Any,
    times: tuple[Duration | None, Duration | None, Duration | None, Duration | None],
    retries: RetryPolicy | int | None,
    queue: str | None,
    priority: int | None,
    activity_id: str,
    counted: tuple[str, int | None] = ("", None),
) -> Callable[[], ActivityHandle]:
    command = scheduled(ctx, task, payload, times, retries, queue, priority, activity_id, counted)
    result = task.result if isinstance(task, Task) else ANY

    def begin() -> ActivityHandle:
        command.activity_id = command.activity_id or str(ctx.number("activity"))
        return operations.schedule(ctx, command, result)

    return begin


def scheduled(
    ctx: WorkflowContext,
    task: Task[..., Any] | str,
    payload: Any,
    times: tuple[Duration | None, Duration | None, Duration | None, Duration | None],
    retries: RetryPolicy | int | None,
    queue: str | None,
    priority: int | None,
    activity_id: str,
    counted: tuple[str, int | None] = ("", None),
) -> ScheduleActivity:
    """The command, with what the @task says where nothing else is said. `counted` is what limits see of it: its
    concurrency key and its weight."""
    known = task if isinstance(task, Task) else None
    if known is None and (not isinstance(task, str) or not task):
        raise InvalidArgument(f"{task!r} is no task", field="task", limit="a @task, or the name of one")
    retry = None if retries is None else retry_policy(retries, "retries")
    concurrency_key, weight = counted
    declared = (known.timeouts if known else None) or _NO_TIMES
    defaults = (declared.schedule_to_start, declared.start_to_close, declared.schedule_to_close, declared.heartbeat)
    to_start, run, whole, heartbeat = (
        span(given if given is not None else default, field)
        for given, default, field in zip(times, defaults, _FIELDS, strict=True)
    )
    return ScheduleActivity(
        task_id=mint_id(),
        activity_id=activity_id,
        activity_type=known.name if known else str(task),
        task_queue=queue or (known.queue if known else "default"),
        input=ctx.converter.to_payloads(payload, "payload", known.payload if known else ANY),
        header=trace_of(ctx.info),
        schedule_to_start=to_start,
        start_to_close=run,
        schedule_to_close=whole,
        heartbeat=heartbeat,
        retry=retry or (known.retry if known else None),
        priority=priority or (known.priority if known else 3),
        concurrency_key=concurrency_key,
        weight=(known.weight if known else 1) if weight is None else weight,
    )


def trace_of(info: Info) -> dict[str, str]:
    """The headers by which what a run starts is of its trace."""
    return {name: info.headers[name] for name in TRACE_HEADERS if name in info.headers}


_FIELDS = ("schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat")


def branch(
    ctx: WorkflowContext,
    name: str,
    branch: tuple[Any, ...],
    retries: RetryPolicy | int | None,
    timeout: Duration | None,
) -> Callable[[], Handle]:
    """One of `parallel`."""
    if not isinstance(branch, tuple) or not branch or not callable(branch[0]):
        raise InvalidArgument(f"{name} is {branch!r}"[:200], field="branches", limit="tuples (function, *args)")
    function, *args = branch
    if not isinstance(function, Task):
        return step(ctx, name, function, tuple(args), retries, timeout)
    return activity(ctx, function, payload_of(name, branch), (None, timeout, None, None), retries, None, None, "")


def payload_of(name: str, branch: tuple[Any, ...]) -> Any:
    """What the @task of a branch gets."""
    function, *args = branch
    if len(args) > 1:
        raise InvalidArgument(f"{name}: task {function.name} takes one payload", field="branches", limit="1 payload")
    return args[0] if args else None


def child(
    ctx: WorkflowContext,
    target: AnyWorkflow,
    payload: Any,
    *,
    workflow_id: str | None = None,
    queue: str | None = None,
    parent_close_policy: str = "terminate",
    execution_timeout: Duration | None = None,
    run_timeout: Duration | None = None,
    retries: RetryPolicy | int | None = None,
    cron: str = "",
    id_reuse: str = "allow_duplicate",
    memo: Mapping[str, Any] | None = None,
    search_attributes: Mapping[str, Any] | None = None,
) -> Callable[[], ChildHandle]:
    if parent_close_policy not in POLICIES:
        raise InvalidArgument(
            f"parent_close_policy is {parent_close_policy!r}", field="parent_close_policy", limit=", ".join(POLICIES)
        )
    known = target if isinstance(target, Workflow) else None
    retry = None if retries is None else retry_policy(retries, "retries")
    whole, one = span(execution_timeout, "execution_timeout"), span(run_timeout, "run_timeout")
    command = StartChildWorkflow(
        task_id=mint_id(),
        workflow_type=named(target),
        workflow_id=workflow_id or "",
        task_queue=queue or (known.queue if known else ctx.info.queue),
        input=ctx.converter.to_payloads(payload, "payload", known.payload if known else ANY),
        header=trace_of(ctx.info),
        execution_timeout=whole or (known.execution_timeout if known else None),
        run_timeout=one or (known.run_timeout if known else None),
        retry=retry or (known.retry if known else None),
        cron=cron,
        parent_close_policy=parent_close_policy,
        id_reuse=id_reuse,
        memo={key: ctx.converter.to_payloads(value, f"memo.{key}") for key, value in (memo or {}).items()},
        search_attributes=dict(search_attributes or {}),
    )
    result = known.result if known else ANY

    def begin() -> ChildHandle:
        command.workflow_id = command.workflow_id or str(ctx.uuid4())
        return operations.start_child(ctx, command, result)

    return begin


def run_id(text: str | None) -> bytes:
    """16 bytes; none at all for None."""
    try:
        return b"" if text is None else UUID(text).bytes
    except ValueError:
        raise InvalidArgument(f"{text!r} is no run id", field="run_id", limit="a UUID") from None


def span(value: Duration | timedelta | None, field: str) -> float | None:
    """In seconds."""
    if value is None:
        return None
    return seconds(value.total_seconds() if isinstance(value, timedelta) else value, field)


def sleep_of(given: tuple[Duration | timedelta, ...], more: float) -> tuple[str, float]:
    """Name and seconds of `ctx.sleep`."""
    if len(given) == 2 or (given and more):
        name, *rest = given
        if not isinstance(name, str):
            raise InvalidArgument("the name of a sleep must be text", field="name", kind=type(name).__name__)
    else:
        name, rest = "", list(given)
    if len(given) > 2 or bool(rest) == bool(more):
        raise InvalidArgument("a sleep takes a name, if any, and one duration", field="duration", limit="1 duration")
    length = span(rest[0] if rest else more, "duration")
    assert length is not None
    return name, length
