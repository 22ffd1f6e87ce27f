"""`perdure limits`: look at limits on what runs at once and how often it starts, set and delete them. See exits.py for
exit statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from perdure.cli.ask import LOCAL, ApiKey, Json, Namespace, Server, call
from perdure.cli.show import show_json, show_table
from perdure.core.limit_messages import LimitView

cli = typer.Typer(help="Look at limits on what runs, set and delete them.", no_args_is_help=True)


class Scope(StrEnum):
    """What a limit is about."""

    NAMESPACE = "namespace"
    QUEUE = "queue"
    TYPE = "type"
    KEY = "key"
    FAIRNESS = "fairness"


About = Annotated[Scope, typer.Argument(help="What it is about.")]
Name = Annotated[str, typer.Argument(help="Of the queue, the type or the key; none for the namespace.")]
Max = Annotated[int | None, typer.Option("--max-running", help="Slots at once; 0 starts nothing.")]
Rate = Annotated[str | None, typer.Option(help='Starts, such as "10/s", "100/m" or "3/30s".')]
Burst = Annotated[int | None, typer.Option(help="Of these, so many at once; by default all of them.")]
Weight = Annotated[int | None, typer.Option(help="Of a fairness key: tasks that it gets in a round.")]
Note = Annotated[str, typer.Option(help="Why.")]


@cli.command("list")
def list_limits(
    server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False
) -> None:
    """Show all limits, the slots taken, and how many tasks wait for them.

    Example: perdure limits list
    """
    found = call(server, api_key, namespace, lambda app: app.limits())
    if json:
        show_json({"limits": found})
        return
    titles = ("scope", "name", "running", "at most", "rate", "burst", "weight", "blocked", "state", "note")
    show_table(titles, [_row(limit) for limit in found])


@cli.command("set")
def set_limit(
    scope: About,
    name: Name = "",
    max_running: Max = None,
    rate: Rate = None,
    burst: Burst = None,
    weight: Weight = None,
    note: Note = "",
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Make or replace a limit, while everything runs. The limit of a key holds for each of its values.

    Example: perdure limits set queue mail --max-running 50 --rate 600/m
    """
    made = call(
        server,
        api_key,
        namespace,
        lambda app: app.set_limit(
            scope.value, name, max_running=max_running, rate=rate, burst=burst, weight=weight, note=note
        ),
        makes=True,
    )
    if json:
        show_json(made)
    else:
        print(f"set the limit of {_words(scope, name)}")


@cli.command("delete")
def delete_limit(
    scope: About,
    name: Name = "",
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Delete a limit. What waits for it starts.

    Example: perdure limits delete queue mail
    """
    call(server, api_key, namespace, lambda app: app.delete_limit(scope.value, name))
    if json:
        show_json({"scope": scope.value, "name": name})
    else:
        print(f"deleted the limit of {_words(scope, name)}")


def _words(scope: Scope, name: str) -> str:
    return f"{scope.value} {name}" if name else f"the {scope.value}"


def _row(limit: LimitView) -> tuple[str, ...]:
    numbers = (limit.max_running, limit.rate, limit.burst, limit.weight)
    most, rate, burst, weight = ("-" if number is None else str(number) for number in numbers)
    state = "paused" if limit.paused else "declared" if limit.declared else "set"
    counts = str(limit.running), most, rate, burst, weight, str(limit.blocked)
    return (limit.scope, limit.name or "-", *counts, state, limit.note or "-")
