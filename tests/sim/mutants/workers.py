"""Mistakes of workers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.worker import heartbeat, report
from tests.sim.mutants.registry import change, mutant


@mutant("only the receipt is beaten")
def _(stack: ExitStack) -> None:
    real = heartbeat.Heartbeats._beat

    async def beat(self: Any, runs: Any) -> None:
        await real(self, [each for each in runs if not each.acknowledged] or runs[:0])
        for each in runs:
            each.beat_at += 60.0

    change(stack, heartbeat.Heartbeats, "_beat", beat)


@mutant("a report is sent once only")
def _(stack: ExitStack) -> None:
    async def send(self: Any, reports: Any) -> None:
        try:
            reply = await self._service.complete(report.Complete([completion for _, completion, _ in reports]))
        except Exception:  # noqa: BLE001 - that is the mistake
            for given in reports:
                self._close(given[0])
        else:
            self._settle(list(zip(reports, reply.outcomes, strict=True)))

    change(stack, report.Reporter, "_send", send)
