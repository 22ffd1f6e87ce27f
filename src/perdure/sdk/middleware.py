"""Middleware: what happens around every handler of an application."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from perdure.sdk.context import Context


class Middleware:
    """Base of middleware, for `Perdure(..., middleware=[...])`; override what you need.

    The methods are plain functions and serve plain and async handlers alike. They run where the handler runs (its
    thread, or its asyncio task on the event loop, which must not be blocked), so context variables that `before` sets
    are seen by the handler. `before` is called in the order of the list, `after` and `error` in the reverse order.

    They watch and may refuse, but they cannot turn an end into another one that is better: nothing that they do keeps a
    failure, a cancel or a lost lease from being what is reported.
    """

    steps: bool = False
    """Whether it is also around plain functions that run as steps of workflows; around a @task it always is."""

    def before_enqueue(self, name: str, headers: dict[str, str]) -> None:
        """This application is about to enqueue a task, or start a workflow, of this name. What is added to `headers`
        goes along, and is in `ctx.headers` there. Of many tasks that are enqueued with one call it is called once. An
        exception refuses the call. Workflow code enqueues nothing: what it starts is not told of."""

    def before(self, ctx: Context, payload: Any) -> None:
        """Before the handler. An exception fails the attempt, and the handler does not run: FatalError and
        RetryableError mean what they mean in handlers."""

    def after(self, ctx: Context, result: Any) -> None:
        """The handler has returned. An exception fails the attempt as if the handler had raised it. Not called once the
        lease is lost or the attempt ran out of time: then `error` is, with Cancelled."""

    def error(self, ctx: Context, error: BaseException) -> None:
        """The handler, or middleware further in, has raised `error`; also when it is to stop (Cancelled, in async
        handlers asyncio.CancelledError: `ctx.stop` says why). What this raises is logged and changes nothing."""


def checked(middleware: Sequence[Middleware]) -> tuple[Middleware, ...]:
    """TypeError for what is no middleware or has async methods, which no plain handler could wait for."""
    for one in middleware:
        if not isinstance(one, Middleware):
            raise TypeError(f"{one!r} is no object of a subclass of Middleware")
        for name in ("before_enqueue", "before", "after", "error"):
            if inspect.iscoroutinefunction(getattr(one, name)):
                raise TypeError(f"{type(one).__name__}.{name} is async; middleware has plain methods")
    return tuple(middleware)
