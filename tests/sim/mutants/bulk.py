"""Mistakes with actions on many jobs: what they leave out."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from perdure.core import bulk
from perdure.engine import bulk as engine
from tests.sim.mutants.registry import change, mutant


@mutant("whoever takes an action over leaves out the step in hand")
def _(stack: ExitStack) -> None:
    real = bulk.action_of
    change(stack, bulk, "action_of", lambda task: replace(real(task), step=[]))


@mutant("the next step of an action begins behind all that was found")
def _(stack: ExitStack) -> None:
    real = engine.pick

    async def pick(*given: Any) -> Any:
        found = await real(*given)
        del found.ids[bulk.STEP :]
        return found

    change(stack, engine, "pick", pick)
