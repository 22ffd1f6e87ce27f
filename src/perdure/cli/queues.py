"""`perdure queues`: what waits where; pause and resume a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import look
from perdure.cli.ask import LOCAL, ApiKey, Json, Namespace, Server, call
from perdure.cli.show import show_json

cli = typer.Typer(help="Look at queues, pause and resume them.", invoke_without_command=True)

Queue = Annotated[str, typer.Argument(help="Name of the queue.")]
Note = Annotated[str, typer.Option(help="Why.")]


@cli.callback()
def queues(
    context: typer.Context,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Show the queues that hold open tasks or are polled. Counts stop at 10,000: "10000+".

    The age is that of the longest waiting among the first ready tasks of each priority, in seconds.

    Example: perdure queues
    """
    if context.invoked_subcommand is None:
        look.queues(server, api_key, namespace, json)


@cli.command()
def pause(
    queue: Queue,
    note: Note = "",
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Start nothing more of a queue until it is resumed; what runs goes on.

    Example: perdure queues pause mail --note "the provider is down"
    """
    call(server, api_key, namespace, lambda app: app.pause("queue", queue, note=note), makes=True)
    if json:
        show_json({"queue": queue, "paused": True})
    else:
        print(f"paused queue {queue}")


@cli.command()
def resume(
    queue: Queue, server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False
) -> None:
    """Go on with a queue.

    Example: perdure queues resume mail
    """
    call(server, api_key, namespace, lambda app: app.resume("queue", queue))
    if json:
        show_json({"queue": queue, "paused": False})
    else:
        print(f"resumed queue {queue}")
