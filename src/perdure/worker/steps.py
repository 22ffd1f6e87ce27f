"""Runs the steps that a turn has claimed: an async function on the worker's loop, a plain one in a thread.

A step is a function of the application, called with its arguments, or a @task, which gets a `ctx` of its own and is run
as in a job (execute.py). Either way `TaskLogFilter` and the like see which attempt runs. Whatever a step raises ends
its attempt; whether another one follows, and when, is decided here: by the error, then by the step's retry policy.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from contextvars import Context
from types import FunctionType
from typing import Any, NamedTuple

from msgspec.structs import replace

from perdure.core.errors import InvalidArgument
from perdure.core.limits import MAX_PAYLOAD
from perdure.core.messages import Completion, Delivery
from perdure.core.model import Failure, Payloads
from perdure.core.turn_commands import StartStep
from perdure.sdk.failure import cut, to_failure
from perdure.sdk.logs import RUNNING
from perdure.sdk.steps import StepCall
from perdure.sdk.task import Task
from perdure.worker.execute import METADATA_BYTES, Environment, Run, complain, leave, run_async, run_plain
from perdure.worker.fork import end_copies, uncopied
from perdure.worker.threads import Threads


class StepEnd(NamedTuple):
    """How an attempt ended: with a result, or with a failure, which another attempt follows after `retry_in`
    seconds."""

    step_id: int
    result: Payloads | None
    failure: Failure | None = None
    retry_in: float | None = None


class Attempt:
    """A claimed step that is to run, or runs. `ended` is called once, on the loop; not after `stop`."""

    __slots__ = ("call", "claim", "ended", "over", "run", "timer")

    def __init__(
        self,
        claim: StartStep,
        call: StepCall,
        parent: Delivery,
        environment: Environment,
        ended: Callable[[StepEnd], None],
    ) -> None:
        task: Task[..., Any] | None = None
        payload: Payloads = ()
        if isinstance(call.function, Task):
            task = call.function
            payload = environment.converter.to_payloads(_only(call, task), "payload", task.payload)
        self.claim = claim
        self.call = call
        self.ended = ended
        self.over = False
        self.timer: asyncio.TimerHandle | None = None
        delivery = Delivery(
            task_id=f"{parent.task_id}/{claim.step_id}",
            lease=b"",
            type=claim.name if task is None else task.name,
            queue=parent.queue,
            attempt=claim.attempt,
            max_attempts=call.retry.max_attempts,
            payload=payload,
            headers=dict(call.headers),
            start_to_close=call.timeout,
            retry=call.retry,
        )
        self.run = Run(delivery, task, _nothing, 0.0, environment)

    @property
    def is_async(self) -> bool:
        function = self.call.function
        if isinstance(function, Task):
            return function.is_async
        if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
            return True
        return inspect.iscoroutinefunction(function)

    def stop(self, reason: str) -> None:
        """Nobody waits for it any more. A plain function can only see it in its `ctx`."""
        self.over = True
        self.run.stop(reason)
        if self.run.running is not None:
            self.run.running.cancel()
        if self.timer is not None:
            self.timer.cancel()

    def end(self, end: StepEnd | None) -> None:
        """On the loop."""
        if self.over:
            return
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        if end is not None:
            self.ended(end)

    # ---------------------------------------------------------------------------------------------------- outcomes
    def returned(self, value: object) -> StepEnd:
        environment, name = self.run.environment, self.claim.name
        try:
            result = environment.converter.to_payloads(value, "result", self.call.result)
        except InvalidArgument as error:
            return self._refused(f"step {name}: {error}")
        size = len(result[0].data) + METADATA_BYTES
        if size > MAX_PAYLOAD:
            return self._refused(f"step {name}: result has {size} bytes, {MAX_PAYLOAD} are allowed")
        return StepEnd(self.claim.step_id, result)

    def raised(self, error: BaseException, skip: int) -> StepEnd:
        return self._failed(to_failure(error, skip=skip), error)

    def completed(self, completion: Completion | None) -> StepEnd | None:
        """Of a @task."""
        if completion is None:
            return None
        if completion.outcome == "succeeded":
            return StepEnd(self.claim.step_id, completion.result)
        failure = completion.failure or Failure(message="the step was stopped", code="canceled", retryable=False)
        return self._again(failure, completion.retry_after)

    def timed_out(self) -> StepEnd:
        limit = self.run.delivery.start_to_close
        text = f"the time-out of {limit:g} s of step {self.claim.name} is over"
        return self._again(Failure(message=text, code="start_to_close_timeout", type="Timeout"), None)

    def _refused(self, message: str) -> StepEnd:
        failure = Failure(message=cut(message), code="unencodable_result", type="InvalidArgument", retryable=False)
        return StepEnd(self.claim.step_id, None, failure)

    def _failed(self, failure: Failure, error: BaseException) -> StepEnd:
        verdict = self.call.after_error.verdict(error, self.claim.attempt)
        if not verdict.again:
            failure = replace(failure, retryable=False)
        return self._again(failure, verdict.wait)

    def _again(self, failure: Failure, wait: float | None) -> StepEnd:
        """With another attempt, if the policy allows one."""
        policy, attempt = self.call.retry, self.claim.attempt
        if not failure.retryable or failure.type in policy.fatal_types or attempt >= policy.max_attempts:
            return StepEnd(self.claim.step_id, None, failure)
        pause = policy.wait(attempt, random.random()) if wait is None else wait
        return StepEnd(self.claim.step_id, None, failure, pause)


class Steps:
    """To be used on one event loop."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._loop = asyncio.get_running_loop()

    def start(self, attempt: Attempt) -> None:
        limit = attempt.run.delivery.start_to_close
        if limit is not None:
            attempt.timer = self._loop.call_later(limit, self._time_out, attempt)
        if attempt.is_async:
            self._loop.create_task(_run_async(attempt))
        else:
            self._threads.call(lambda: run_here(attempt), attempt.end)

    def _time_out(self, attempt: Attempt) -> None:
        """The step has ended with that, also when its function goes on for a while."""
        if not attempt.over:
            attempt.stop("timeout")
            attempt.ended(attempt.timed_out())


async def _run_async(attempt: Attempt) -> None:
    if attempt.run.task is not None:
        attempt.end(attempt.completed(await run_async(attempt.run)))
        return
    run = attempt.run
    run.running = asyncio.current_task()
    RUNNING.set(run.ctx)
    call: Any = attempt.call
    try:
        _enter(run)
        value = await uncopied(call.function(*call.args), run.pid)
        leave(run, value)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends this attempt and not the worker
        complain(run, error)
        end = attempt.raised(error, 2)
    else:
        end = attempt.returned(value)
    attempt.end(end)


def run_here(attempt: Attempt) -> StepEnd | None:
    """Run the plain function of a step in the calling thread. It sees nothing of what is around it, as the workflow
    whose code runs there, and what it sets in context variables is forgotten."""
    if attempt.run.task is not None:
        return attempt.completed(Context().run(run_plain, attempt.run))
    return Context().run(_run_here, attempt)


def _run_here(attempt: Attempt) -> StepEnd:
    run, call = attempt.run, attempt.call
    RUNNING.set(run.ctx)
    try:
        _enter(run)
        value = call.function(*call.args)
        leave(run, value)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends this attempt and not the worker
        end_copies(run.pid)
        complain(run, error)
        return attempt.raised(error, 1)
    end_copies(run.pid)
    return attempt.returned(value)


def _enter(run: Run) -> None:
    """Tell the middleware that wants to know of steps."""
    for middleware in run.environment.middleware:
        if middleware.steps:
            middleware.before(run.ctx, None)
            run.entered.append(middleware)


def _only(call: StepCall, task: Task[..., Any]) -> object:
    """The payload of a @task: what it is called with besides its `ctx`."""
    if len(call.args) > 1:
        raise InvalidArgument(f"task {task.name} takes one payload, not {len(call.args)}", field="args", limit="1")
    return call.args[0] if call.args else None


def _nothing(_: Run) -> None:
    """Progress and checkpoints of a step are nobody's business."""
