"""`perdure queues`: what waits where, and who looks after it; pause and resume a queue."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import look
from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json
from perdure.core.owners import DEFAULT_DEPTH

cli = typer.Typer(help="Look at queues, pause and resume them.", invoke_without_command=True)

Queue = Annotated[str, typer.Argument(help="Name of the queue.")]
Note = Annotated[str, typer.Option(help="Why.")]


@cli.callback()
@spread
def queues(context: typer.Context, *, whom: Whom, json: Json = False) -> None:
    """Show the queues that hold open tasks, are polled, or have an owner. Counts stop at 10,000: "10000+".

    The age is that of the longest waiting among the first ready tasks of each priority, in seconds.

    Example: perdure queues
    """
    if context.invoked_subcommand is None:
        look.queues(whom, json)


@cli.command()
@spread
def own(
    queue: Queue,
    owner: Annotated[str, typer.Argument(help="Who looks after it and its dead letters.")],
    alert_depth: Annotated[int, typer.Option(min=1, help="More ready tasks than this are too many.")] = DEFAULT_DEPTH,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Say who looks after a queue; `perdure doctor` tells of queues without an owner, and of those that hold too much.

    Example: perdure queues own mail "mail team" --alert-depth 5000
    """
    call(
        whom, lambda app: app.set_queue_owner(queue, owner, alert_depth=alert_depth), makes=True
    )  # fmt: skip
    if json:
        show_json({"queue": queue, "owner": owner, "alert_depth": alert_depth})
    else:
        print(f"{owner} looks after queue {queue}")


@cli.command()
@spread
def disown(queue: Queue, *, whom: Whom, json: Json = False) -> None:
    """Nobody looks after a queue any more. Its tasks stay.

    Example: perdure queues disown mail
    """
    call(whom, lambda app: app.delete_queue_owner(queue))
    if json:
        show_json({"queue": queue, "owner": ""})
    else:
        print(f"nobody looks after queue {queue}")


@cli.command()
@spread
def pause(queue: Queue, note: Note = "", *, whom: Whom, json: Json = False) -> None:
    """Start nothing more of a queue until it is resumed; what runs goes on.

    Example: perdure queues pause mail --note "the provider is down"
    """
    call(whom, lambda app: app.pause("queue", queue, note=note), makes=True)
    if json:
        show_json({"queue": queue, "paused": True})
    else:
        print(f"paused queue {queue}")


@cli.command()
@spread
def resume(queue: Queue, *, whom: Whom, json: Json = False) -> None:
    """Go on with a queue.

    Example: perdure queues resume mail
    """
    call(whom, lambda app: app.resume("queue", queue))
    if json:
        show_json({"queue": queue, "paused": False})
    else:
        print(f"resumed queue {queue}")
