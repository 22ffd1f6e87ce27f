"""The client's half for limits (docs/flow-control.md). `AsyncLimits` is a part of AsyncClient, `Limits` of Perdure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from perdure.core.limit_messages import (
    Breaker,
    DeleteLimit,
    LimitSpec,
    LimitView,
    ListLimits,
    PauseLimit,
    SetLimit,
    SwitchBreaker,
)
from perdure.sdk.part import AsyncPart, Part
from perdure.sdk.task import Task

Scope = Literal["namespace", "queue", "type", "key", "fairness"]


def declared(tasks: Iterable[Task[..., Any]]) -> list[LimitSpec]:
    """The limits that tasks declare."""
    return [
        LimitSpec("type", task.name, max_running=task.concurrency, rate=task.rate, breaker=task.breaker)
        for task in tasks
        if (task.concurrency, task.rate, task.breaker) != (None, None, None)
    ]


class AsyncLimits(AsyncPart):
    """A part of AsyncClient."""

    async def limits(self) -> list[LimitView]:
        """The limits of the namespace, and how they stand."""
        return (await (await self.service()).limits(ListLimits())).limits

    async def set_limit(
        self,
        scope: Scope,
        name: str = "",
        *,
        max_running: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        weight: int | None = None,
        breaker: Breaker | None = None,
        note: str = "",
    ) -> LimitView:
        """Make or replace a limit, while everything runs.

        scope        "namespace" (without a name), "queue", "type", "key" (for each value of a concurrency key), or
                     "fairness", whose `weight` says how many tasks a round the fairness key gets
        max_running  slots at once; 0 starts nothing
        rate         starts, such as "10/s", "100/m" or "3/30s", of which `burst` may come at once
        breaker      of a type: when it gets a rest because its attempts crash or fail
        """
        spec = LimitSpec(scope, name, max_running, rate, burst, weight, note, breaker)
        view = (await (await self.service()).set_limit(SetLimit(spec))).limit
        assert view is not None
        return view

    async def delete_limit(self, scope: Scope, name: str = "") -> None:
        """Nothing is limited by it any more. NotFound when there is no such limit."""
        await (await self.service()).delete_limit(DeleteLimit(scope, name))

    async def pause(self, scope: Scope, name: str = "", *, note: str = "") -> None:
        """Start nothing more of a namespace, queue, type or key until `resume`; what runs goes on. `note` says why."""
        await (await self.service()).pause_limit(PauseLimit(scope, name, True, note))

    async def resume(self, scope: Scope, name: str = "") -> None:
        """Go on after `pause`; harmless when repeated."""
        await (await self.service()).pause_limit(PauseLimit(scope, name, False))

    async def open_breaker(self, name: str, *, note: str = "") -> None:
        """Let nothing of a task type start for the cool-down of its breaker, then its probes. NotFound when it has
        none."""
        await (await self.service()).switch_breaker(SwitchBreaker(name, True, note))

    async def close_breaker(self, name: str, *, note: str = "") -> None:
        """Let everything of a task type start again at once. NotFound when it has no breaker."""
        await (await self.service()).switch_breaker(SwitchBreaker(name, False, note))


class Limits(Part):
    """AsyncLimits for code without an event loop: every call blocks."""

    _app: AsyncLimits

    def limits(self) -> list[LimitView]:
        """See AsyncLimits.limits."""
        return self._run(self._app.limits())

    def set_limit(
        self,
        scope: Scope,
        name: str = "",
        *,
        max_running: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
        weight: int | None = None,
        breaker: Breaker | None = None,
        note: str = "",
    ) -> LimitView:
        """See AsyncLimits.set_limit."""
        made = self._app.set_limit(
            scope, name, max_running=max_running, rate=rate, burst=burst, weight=weight, breaker=breaker, note=note
        )
        return self._run(made)

    def delete_limit(self, scope: Scope, name: str = "") -> None:
        """See AsyncLimits.delete_limit."""
        self._run(self._app.delete_limit(scope, name))

    def pause(self, scope: Scope, name: str = "", *, note: str = "") -> None:
        """See AsyncLimits.pause."""
        self._run(self._app.pause(scope, name, note=note))

    def resume(self, scope: Scope, name: str = "") -> None:
        """See AsyncLimits.resume."""
        self._run(self._app.resume(scope, name))

    def open_breaker(self, name: str, *, note: str = "") -> None:
        """See AsyncLimits.open_breaker."""
        self._run(self._app.open_breaker(name, note=note))

    def close_breaker(self, name: str, *, note: str = "") -> None:
        """See AsyncLimits.close_breaker."""
        self._run(self._app.close_breaker(name, note=note))
