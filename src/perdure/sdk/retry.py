"""What a worker says about an error: whether another attempt may follow, and when.

The server has the last word. It counts the attempts, and it waits as the task's policy says wherever the worker says
nothing. The worker's part is what only it can know, the class of an exception with all its bases:

    1. FatalError ends the task, RetryableError does not and may say when to go on; also within an ExceptionGroup
    2. `retry_if` answers False: the task ends
    3. `retries_for` has a class that fits: its policy says how long to wait, or that this was the last attempt
"""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from perdure.core import limits
from perdure.core.errors import FatalError, InvalidArgument, RetryableError
from perdure.core.model import DEFAULT_RETRY, RetryPolicy

log = logging.getLogger("perdure.worker")

_MONTH = 31 * 86_400.0


class Verdict(NamedTuple):
    """`wait` in seconds; None leaves it to the server."""

    again: bool = True
    wait: float | None = None


@dataclass(frozen=True)
class AfterError:
    """What a task declares about errors of its handler."""

    retry_if: Callable[[BaseException], bool] | None = None
    policies: tuple[tuple[type[BaseException], RetryPolicy], ...] = ()

    @classmethod
    def of(
        cls,
        retry_if: Callable[[BaseException], bool] | None,
        retries_for: Mapping[type[BaseException], RetryPolicy | int],
        overall: RetryPolicy,
    ) -> AfterError:
        """Checked: InvalidArgument, or TypeError for what is of no use at all."""
        if retry_if is not None and (not callable(retry_if) or inspect.iscoroutinefunction(retry_if)):
            raise TypeError("retry_if must be a plain function of the exception: its answer is needed at once")
        policies = []
        for kind, retries in retries_for.items():
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise TypeError(f"retries_for has the key {kind!r}, which is no exception class")
            field = f"retries_for[{kind.__name__}]"
            policy = retry_policy(retries, field)
            chosen = policy.max_attempts != DEFAULT_RETRY.max_attempts
            if chosen and policy.max_attempts > overall.max_attempts:
                raise InvalidArgument(
                    f"{field} allows {policy.max_attempts} attempts, the task itself {overall.max_attempts}",
                    field=field,
                    limit="the max_attempts of retries",
                )
            policies.append((kind, policy))
        return cls(retry_if, tuple(policies))

    def verdict(self, error: BaseException, attempt: int) -> Verdict:
        """After attempt number `attempt` ended with `error`."""
        steering = steers(error)
        if isinstance(steering, FatalError):
            return Verdict(again=False)
        if steering is not None:
            after = steering.retry_after
            return Verdict(wait=None if after is None else min(max(after, 0.0), _MONTH))
        if self.retry_if is not None and not self._asked(self.retry_if, error):
            return Verdict(again=False)
        for kind, policy in self.policies:
            if isinstance(error, kind):
                if attempt >= policy.max_attempts:
                    return Verdict(again=False)
                return Verdict(wait=policy.wait(attempt, random.random()))
        return Verdict()

    def _asked(self, retry_if: Callable[[BaseException], bool], error: BaseException) -> bool:
        """Its answer; an answer that cannot be had ends nothing."""
        try:
            return bool(retry_if(error))
        except Exception:
            log.exception("retry_if raised an error; the task's retry policy decides")
            return True


def steers(error: BaseException) -> FatalError | RetryableError | None:
    """The exception that decides by itself, out of a group as well: a FatalError before a RetryableError."""
    if isinstance(error, (FatalError, RetryableError)):
        return error
    if isinstance(error, BaseExceptionGroup):
        for kind in (FatalError, RetryableError):
            found: BaseException | None = error.subgroup(kind)
            while isinstance(found, BaseExceptionGroup):
                found = found.exceptions[0]
            if isinstance(found, (FatalError, RetryableError)):
                return found
    return None


def retry_policy(retries: RetryPolicy | int, field: str) -> RetryPolicy:
    """A policy, or how many attempts may follow the first one. InvalidArgument names the field and its limit."""
    if isinstance(retries, RetryPolicy):
        return limits.retry_policy(retries, field)
    if type(retries) is not int or retries < 0:
        raise InvalidArgument(f"{field} is {retries!r}", field=field, limit="a RetryPolicy, or 0 and more")
    return limits.retry_policy(RetryPolicy(max_attempts=retries + 1), field)
