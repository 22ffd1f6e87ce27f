"""Mistakes with the sessions of workers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from perdure.core import commands as c
from perdure.engine import sessions
from tests.sim.mutants.registry import change, mutant


@mutant("`<=` for `<` in the epochs of sessions")
def _(stack: ExitStack) -> None:
    real = sessions._open

    async def open_(rows: Any, command: c.OpenSession) -> None:
        known = await rows.lock_session(command.incarnation)
        if known is not None and known.epoch == command.epoch:
            return
        await real(rows, command)

    change(stack, sessions, "_open", open_)


@mutant("an old connection ends a new session")
def _(stack: ExitStack) -> None:
    real = sessions._close

    async def close(rows: Any, command: c.CloseSession) -> None:
        await real(rows, c.CloseSession(incarnation=command.incarnation))

    change(stack, sessions, "_close", close)
