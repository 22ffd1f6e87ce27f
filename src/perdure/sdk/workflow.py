"""`@workflow`: a function or a class becomes a workflow, known by its name; and `workflow.<operation>` inside of one.

    @workflow
    async def fulfil(ctx, order): ...

    @workflow(name="cart", queue="carts")
    class Cart:
        def __init__(self) -> None: ...
        async def run(self, ctx, customer): ...
        @workflow.signal
        def add(self, item): ...
        @workflow.query
        def total(self): ...
        @workflow.update
        async def check_out(self, card): ...
        @check_out.validator
        def has_items(self, card): ...

As with tasks, servers store only the name. An object of the class is made for each run, before its first message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, overload

from perdure.core.durations import Duration, seconds
from perdure.core.model import RetryPolicy
from perdure.sdk.definition import MARK, WORKFLOWS, Declared, Workflow, check, register
from perdure.sdk.retry import retry_policy
from perdure.sdk.task import R, place
from perdure.sdk.workflow_context import CURRENT

__all__ = ["WORKFLOWS", "Workflow", "workflow"]

R_co = TypeVar("R_co", covariant=True)


class WorkflowOptions(TypedDict, total=False):
    """What `@workflow(...)` may say; see there."""

    name: str | None
    queue: str
    retries: RetryPolicy | int | None
    execution_timeout: Duration | None
    run_timeout: Duration | None


class _Runs(Protocol[R_co]):
    """A class of workflows."""

    @property
    def run(self) -> Callable[..., R_co]: ...


class _Decorate(Protocol):
    """What `@workflow(...)` does."""

    @overload
    def __call__(self, function: type[_Runs[Coroutine[Any, Any, R]]], /) -> Workflow[R]: ...
    @overload
    def __call__(self, function: type[_Runs[R]], /) -> Workflow[R]: ...
    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> Workflow[R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Workflow[R]: ...


class _Decorator:
    """The object `workflow`."""

    @overload
    def __call__(
        self, function: type[_Runs[Coroutine[Any, Any, R]]], /, **options: Unpack[WorkflowOptions]
    ) -> Workflow[R]: ...
    @overload
    def __call__(self, function: type[_Runs[R]], /, **options: Unpack[WorkflowOptions]) -> Workflow[R]: ...
    @overload
    def __call__(
        self, function: Callable[..., Coroutine[Any, Any, R]], /, **options: Unpack[WorkflowOptions]
    ) -> Workflow[R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /, **options: Unpack[WorkflowOptions]) -> Workflow[R]: ...
    @overload
    def __call__(self, /, **options: Unpack[WorkflowOptions]) -> _Decorate: ...
    def __call__(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        retries: RetryPolicy | int | None = None,
        execution_timeout: Duration | None = None,
        run_timeout: Duration | None = None,
    ) -> Any:
        """Make a workflow of `f(ctx, payload)` or `f(ctx)`, plain or async, or of a class with such a method `run`;
        bare or with options.

        name               what servers know it by; the function's or the class's `__name__` by default
        queue              where its turns wait for a worker, unless who starts it says otherwise
        retries            how often the whole workflow is run again after it failed; not at all by default
        execution_timeout  longest time of all its runs together: retries, cron, continue-as-new
        run_timeout        longest time of one run

        Raises InvalidArgument for a bad option, TypeError for what cannot be called like this, and ValueError for a
        name that is taken.
        """
        retry = None if retries is None else retry_policy(retries, "retries")
        whole = None if execution_timeout is None else seconds(execution_timeout, "execution_timeout", least=0.001)
        one = None if run_timeout is None else seconds(run_timeout, "run_timeout", least=0.001)

        def decorate(function: Callable[..., Any]) -> Workflow:
            check(function)
            known_as = name if name is not None else function.__name__
            return register(Workflow(function, known_as, queue, retry, whole, one))

        return decorate if function is None else decorate(function)

    def signal(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Declare a method to be the handler of the signals of its name."""
        return _declare("signals", function, name)

    def query(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Declare a plain method that answers queries of its name, and changes nothing."""
        return _declare("queries", function, name)

    def update(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Declare a method that answers updates of its name. `@<method>.validator` decorates a plain method that may
        reject one by raising."""
        return _declare("updates", function, name)

    def __getattr__(self, name: str) -> Any:
        """What `ctx` of the workflow that is running here has."""
        if name.startswith("__"):
            raise AttributeError(name)
        ctx = CURRENT.get()
        if ctx is None:
            raise AttributeError(f"workflow.{name} is for the code of a workflow, and none is running here")
        return getattr(ctx, name)


workflow = _Decorator()
"""Decorator of workflows; and, in the code of one, what its `ctx` can do: `workflow.now()`, `workflow.sleep(10)`."""


def _declare(kind: str, function: Any, name: str | None) -> Any:
    def decorate(function: Any) -> Any:
        if not inspect.isfunction(function):
            raise TypeError(f"{function!r} is no method")
        if kind == "queries" and inspect.iscoroutinefunction(function):
            raise TypeError(f"the query at {place(function)} is async; it only reads, so it has nothing to wait for")
        declared = Declared(kind, name or function.__name__, [])
        setattr(function, MARK, declared)
        if kind == "updates":
            function.validator = lambda validator: _validate(declared, validator)  # type: ignore[attr-defined]
        return function

    return decorate if function is None else decorate(function)


def _validate(declared: Declared, validator: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(validator):
        raise TypeError(f"the validator at {place(validator)} is async; it only looks, so it has nothing to wait for")
    declared.validator.append(validator)
    return validator
