"""`perdure limits`: look at limits on what runs at once and how often it starts, and at breakers; set and delete them.
See exits.py for exit statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json, show_table
from perdure.core.limit_messages import Breaker, LimitView

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
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="Name of the task type.")]


class BreakerOptions(NamedTuple):
    """The breaker of a type; none as long as nothing is said."""

    crashes: Annotated[int | None, typer.Option(help="The breaker of a type opens after so many in a row.")] = None
    failure_rate: Annotated[float | None, typer.Option(help="Or once this part of the attempts failed, as 0.5.")] = None
    window: Annotated[str, typer.Option(help="Of the failure rate.")] = "60s"
    min_attempts: Annotated[int, typer.Option(help="In the window, before the rate says anything.")] = 20
    cool_down: Annotated[str, typer.Option(help="How long the breaker stays open before probes start.")] = "30s"
    probes: Annotated[int, typer.Option(help="Attempts that start then, and must succeed.")] = 1


@cli.command("list")
@spread
def list_limits(*, whom: Whom, json: Json = False) -> None:
    """Show all limits, the slots taken, and how many tasks wait for them.

    Example: perdure limits list
    """
    found = call(whom, lambda app: app.limits())
    if json:
        show_json({"limits": found})
        return
    titles = ("scope", "name", "running", "at most", "rate", "burst", "weight", "blocked", "state", "note")
    show_table(titles, [_row(limit) for limit in found])


@cli.command("set")
@spread
def set_limit(
    scope: About,
    name: Name = "",
    max_running: Max = None,
    rate: Rate = None,
    burst: Burst = None,
    weight: Weight = None,
    note: Note = "",
    *,
    rest: BreakerOptions,
    whom: Whom,
    json: Json = False,
) -> None:
    """Make or replace a limit, while everything runs. The limit of a key holds for each of its values. A type gets a
    breaker by --crashes, --failure-rate or both.

    Example: perdure limits set queue mail --max-running 50 --rate 600/m
    """
    breaker = None if rest == BreakerOptions() else Breaker(*rest)
    made = call(
        whom,
        lambda app: app.set_limit(
            scope.value,
            name,
            max_running=max_running,
            rate=rate,
            burst=burst,
            weight=weight,
            breaker=breaker,
            note=note,
        ),
        makes=True,
    )
    if json:
        show_json(made)
    else:
        print(f"set the limit of {_words(scope, name)}")


@cli.command("delete")
@spread
def delete_limit(scope: About, name: Name = "", *, whom: Whom, json: Json = False) -> None:
    """Delete a limit. What waits for it starts.

    Example: perdure limits delete queue mail
    """
    call(whom, lambda app: app.delete_limit(scope.value, name))
    if json:
        show_json({"scope": scope.value, "name": name})
    else:
        print(f"deleted the limit of {_words(scope, name)}")


@cli.command("open")
@spread
def open_breaker(type: TypeName, note: Note = "", *, whom: Whom, json: Json = False) -> None:
    """Open the breaker of a task type: nothing of it starts for the cool-down, then its probes do.

    Example: perdure limits open charge --note "the provider is down"
    """
    call(whom, lambda app: app.open_breaker(type, note=note))
    _say("open", type, json)


@cli.command("close")
@spread
def close_breaker(type: TypeName, note: Note = "", *, whom: Whom, json: Json = False) -> None:
    """Close the breaker of a task type: everything of it starts again.

    Example: perdure limits close charge --note "the new version is out"
    """
    call(whom, lambda app: app.close_breaker(type, note=note))
    _say("closed", type, json)


def _say(state: str, type: str, json: bool) -> None:
    if json:
        show_json({"type": type, "state": state})
    else:
        print(f"the breaker of type {type} is {state}")


def _words(scope: Scope, name: str) -> str:
    return f"{scope.value} {name}" if name else f"the {scope.value}"


def _row(limit: LimitView) -> tuple[str, ...]:
    numbers = (limit.max_running, limit.rate, limit.burst, limit.weight)
    most, rate, burst, weight = ("-" if number is None else str(number) for number in numbers)
    breaker = limit.breaker if limit.breaker is not None and limit.breaker.state != "closed" else None
    state = "declared" if limit.declared else "set"
    if limit.paused:
        state = "paused"
    elif breaker is not None:
        state = breaker.state
    note = limit.note or (breaker.reason if breaker is not None else "-")
    counts = str(limit.running), most, rate, burst, weight, str(limit.blocked)
    return (limit.scope, limit.name or "-", *counts, state, note)
