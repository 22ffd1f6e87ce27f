"""`perdure doctor`: the standing checks, on demand."""

from __future__ import annotations

import textwrap

import typer

from perdure.cli.ask import LOCAL, ApiKey, Json, Namespace, Server, call
from perdure.cli.show import show_json
from perdure.core.doctor_messages import Finding

_WIDTH = 100


def doctor(server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False) -> None:
    """Look for what should not be as it is, and say what to do; exit status 1 when something was found.

    Example: perdure doctor
    """
    reply = call(server, api_key, namespace, lambda app: app.doctor())
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
