"""A request in two halves: the commands that it makes, and the reply that their outcomes make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core.errors import Internal, PerdureError
from perdure.engine.engine import Engine


class Plan(msgspec.Struct):
    """The commands of a request and what makes its reply (or raises) from their outcomes."""

    commands: Sequence[c.Command]
    finish: Callable[[Sequence[c.Outcome]], m.Body]

    async def carry_out(self, engine: Engine) -> m.Body:
        outcomes = await engine.apply(self.commands) if self.commands else []
        return self.finish(outcomes)


def as_changed(outcome: c.Outcome) -> c.Changed:
    if isinstance(outcome, c.Changed):
        return outcome
    raise as_error(outcome)


def as_accepted(outcome: c.Outcome) -> None:
    if not isinstance(outcome, c.Accepted):
        raise as_error(outcome)


def as_error(outcome: c.Outcome) -> PerdureError:
    """The error of a command; that it answers something else than it should is one as well."""
    if isinstance(outcome, PerdureError):
        return outcome
    return Internal(f"unexpected outcome {type(outcome).__name__}")
