"""`@task`: a function becomes a durable one, known by its name.

A server stores only the name, so the name is what must stay stable. It defaults to the function's own `__name__`,
without the module: moving the function to another file strands nothing. Two functions of one name are an error at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, overload

from perdure.core.durations import Duration, seconds
from perdure.core.errors import InvalidArgument
from perdure.core.limit_messages import Breaker
from perdure.core.limits import MAX_PRIORITY, MAX_SLOTS, starts_of
from perdure.core.limits import breaker as check_breaker
from perdure.core.messages import TimeoutOptions
from perdure.core.model import DEFAULT_RETRY, RetryPolicy
from perdure.sdk import hints
from perdure.sdk.retry import AfterError, retry_policy

P = ParamSpec("P")
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")
"""What a task or a workflow returns in the end. Type checkers take it for Any where only a name is known."""

REGISTRY: dict[str, Task[..., Any]] = {}
"""Every task of this process by name; what a worker runs unless it is told otherwise."""


class Task(Generic[P, R]):
    """A durable function, whose result is an R. Calling it runs the function here and now, without a queue."""

    def __init__(
        self,
        function: Callable[P, Any],
        name: str,
        queue: str = "default",
        retry: RetryPolicy | None = None,
        timeouts: TimeoutOptions | None = None,
        priority: int = 3,
        weight: int = 1,
        process: bool = False,
        after_error: AfterError | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.queue = queue
        self.retry = retry
        self.timeouts = timeouts
        self.priority = priority
        self.weight = weight
        self.process = process
        self.after_error = after_error or AfterError()
        self.concurrency = concurrency
        self.rate = rate
        self.breaker = breaker
        self.payload, self.result = hints.of_function(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.__doc__ = function.__doc__
        self.__name__ = name
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} of {place(self.function)}>"


if TYPE_CHECKING:

    class PlainTask(Task[P, R]):
        """What type checkers know of one that is called like any function."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    class AsyncTask(Task[P, R]):
        """And of one whose function is async."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...


class Decorate(Protocol):
    """What `@task(...)` does to a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
@overload
def task(function: Callable[P, R], /) -> PlainTask[P, R]: ...
@overload
def task(
    *,
    name: str | None = None,
    queue: str = "default",
    retries: RetryPolicy | int | None = None,
    timeout: Duration | None = None,
    schedule_to_start: Duration | None = None,
    schedule_to_close: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    lease: Duration | None = None,
    priority: int = 3,
    weight: int = 1,
    process: bool = False,
    retry_if: Callable[[BaseException], bool] | None = None,
    retries_for: Mapping[type[BaseException], RetryPolicy | int] | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    breaker: Breaker | None = None,
) -> Decorate: ...
def task(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    retries: RetryPolicy | int | None = None,
    timeout: Duration | None = None,
    schedule_to_start: Duration | None = None,
    schedule_to_close: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    lease: Duration | None = None,
    priority: int = 3,
    weight: int = 1,
    process: bool = False,
    retry_if: Callable[[BaseException], bool] | None = None,
    retries_for: Mapping[type[BaseException], RetryPolicy | int] | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    breaker: Breaker | None = None,
) -> Any:
    """Make a durable task of `def f(ctx, payload)` or `async def f(ctx, payload)`; bare or with options.

    name               what servers know it by; the function's `__name__` by default
    queue              where it is enqueued unless the call says otherwise
    retries            a RetryPolicy, or how many attempts may follow the first one; 4 by default, with back-off
    timeout            longest time of one attempt (start-to-close)
    schedule_to_start  a task that waited longer before its first start expires instead of running late
    schedule_to_close  longest time of all attempts and waits together
    heartbeat_timeout  longest silence of the worker while an attempt runs
    lease              life of the lease without heartbeats, 30 s by default: how soon a vanished worker is noticed
    priority           1 first to 5 last
    weight             how many slots a run takes, of its worker and of every limit; where there are fewer it takes all
    process            run in a child process of the worker: for plain functions that compute. It can be killed, so
                       cancel and time-out end it whatever it does, and a crash ends only its own attempt. The function
                       must be at the top level of a module
    retry_if           asked with the exception of an attempt that failed: False ends the task, whatever attempts remain
    retries_for        exception classes with what `retries` takes, for errors of the first class that fits (subclasses
                       too); within the `max_attempts` of `retries`, which count all attempts
    concurrency        slots of all that run at once, in all workers: the limit of this type, unless an operator sets it
    rate               how often runs may start, such as "10/s" or "100/m"; the same
    breaker            a Breaker: when the type gets a rest because its attempts crash or fail; the same

    FatalError and RetryableError decide by themselves, before `retry_if` and `retries_for`. Payload and result have the
    types that the function is annotated with (docs/handlers.md). Times are seconds or text such as "10m" or "1h30m".

    Raises InvalidArgument for a bad option, TypeError for a function that cannot be called as f(ctx, payload) or an
    async `retry_if`, and ValueError for a name that is taken.
    """
    _check_integer(priority, "priority", MAX_PRIORITY)
    _check_integer(weight, "weight", None)
    _check_limit(concurrency, rate, breaker)
    times = (schedule_to_start, timeout, schedule_to_close, heartbeat_timeout, lease)
    limits = None if times == (None,) * len(times) else _timeouts(*times)
    retry = None if retries is None else retry_policy(retries, "retries")
    then = AfterError.of(retry_if, retries_for or {}, retry or DEFAULT_RETRY)

    def decorate(function: Callable[P, Any]) -> Task[P, Any]:
        _check(function)
        if process:
            _check_loadable(function)
        options = (queue, retry, limits, priority, weight, process, then, concurrency, rate, breaker)
        return _register(Task(function, function.__name__ if name is None else name, *options))

    return decorate if function is None else decorate(function)


def place(function: Callable[..., Any]) -> str:
    """Where a function is written: file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _register(new: Task[P, R]) -> Task[P, R]:
    """The same function loaded twice (as a script and as a module) is no duplicate; the later one is used."""
    known = REGISTRY.get(new.name)
    if known is not None and place(known.function) != place(new.function):
        here, there = place(new.function), place(known.function)
        raise ValueError(f"two tasks are named {new.name!r}: at {there} and at {here}; give one another name=")
    REGISTRY[new.name] = new
    return new


def _check(function: Callable[..., Any]) -> None:
    where = f"task {getattr(function, '__name__', function)!r} at {place(function)}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{where} is a generator; a task returns one value")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise TypeError(f"{where} must take (ctx, payload): {error}") from None


def _check_loadable(function: Callable[..., Any]) -> None:
    where = f"task {getattr(function, '__name__', function)!r} at {place(function)}"
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{where} is async; process=True is for plain functions")
    if "<locals>" in getattr(function, "__qualname__", ""):
        raise TypeError(f"{where} is defined in a function; another process can only load it from the top of a module")


def _check_limit(concurrency: int | None, rate: str | None, breaker: Breaker | None) -> None:
    if concurrency is not None:
        _check_integer(concurrency, "concurrency", MAX_SLOTS)
    if rate is not None:
        starts_of(rate)
    if breaker is not None:
        check_breaker(breaker)


def _check_integer(value: object, field: str, most: int | None) -> None:
    if type(value) is not int or value < 1 or (most is not None and value > most):
        limit = "1 and more" if most is None else f"1 to {most}"
        raise InvalidArgument(f"{field} is {value!r}", field=field, limit=limit, kind=type(value).__name__)


def _timeouts(
    schedule_to_start: Duration | None,
    timeout: Duration | None,
    schedule_to_close: Duration | None,
    heartbeat_timeout: Duration | None,
    lease: Duration | None,
) -> TimeoutOptions:
    return TimeoutOptions(
        schedule_to_start=_duration(schedule_to_start, "schedule_to_start"),
        start_to_close=_duration(timeout, "timeout"),
        schedule_to_close=_duration(schedule_to_close, "schedule_to_close"),
        heartbeat=_duration(heartbeat_timeout, "heartbeat_timeout"),
        lease=_duration(lease, "lease"),
    )


def _duration(value: Duration | None, field: str) -> float | None:
    return None if value is None else seconds(value, field, least=0.001)
