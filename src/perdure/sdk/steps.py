"""What a worker runs for a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from perdure.core.model import RetryPolicy
from perdure.sdk.hints import Hint
from perdure.sdk.retry import AfterError


class StepCall(NamedTuple):
    """`function` is called with `args`; if it is a Task, with a ctx of its own before them. The attempt is that of the
    StartStep command. `result` is the type that the function is annotated to return: for the converter, on both
    ways."""

    step_id: int
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    retry: RetryPolicy
    after_error: AfterError  #: decides, with `retry`, whether another attempt follows
    timeout: float | None  #: seconds, of one attempt
    result: Hint
    headers: Mapping[str, str] = {}  #: of the ctx: by them the step is of the run's trace
