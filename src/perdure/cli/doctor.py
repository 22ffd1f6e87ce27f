"""`perdure doctor`: the standing checks, on demand."""

from __future__ import annotations

import textwrap

import typer

from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json
from perdure.core.doctor_messages import Finding

_WIDTH = 100


@spread
def doctor(*, whom: Whom, json: Json = False) -> None:
    """Look for what should not be as it is, and say what to do; exit status 1 when something was found.

    Example: perdure doctor
    """
    reply = call(whom, lambda app: app.doctor())
    if json:
        show_json(reply)
    else:
        for found in reply.findings:
            _show(found)
        more = "" if reply.whole else " (a million open tasks were looked at, there are more)"
        print(f"{len(reply.checks)} checks, {len(reply.findings)} findings{more}")
    if reply.findings:
        raise typer.Exit(1)


def _show(found: Finding) -> None:
    print(f"{found.check}: {found.detail}")
    for line in textwrap.wrap(f"what to do: {found.advice}", _WIDTH):
        print(f"  {line}")
    for example in found.examples:
        print(f"  {example}")
