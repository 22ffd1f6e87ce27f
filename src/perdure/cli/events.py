"""`perdure events` and `perdure tasks stream`: what happens, as it happens, from a shell. See exits.py for exit
statuses."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json, time
from perdure.core.event_messages import Event, FeedView
from perdure.core.model import Payload
from perdure.sdk.stream import Chunk

cli = typer.Typer(help="Record and follow what happens to tasks and workflows.", no_args_is_help=True)

Types = Annotated[list[str] | None, typer.Option("--type", help='Such as task.failed or "workflow.*"; repeatable.')]
Limit = Annotated[int | None, typer.Option(min=1, help="End after so many.")]


@cli.command()
@spread
def on(*, whom: Whom, json: Json = False) -> None:
    """Begin to record the events of the namespace.

    Example: perdure events on
    """
    _record(True, whom, json)


@cli.command()
@spread
def off(*, whom: Whom, json: Json = False) -> None:
    """Record no more events. Refused while there are webhooks.

    Example: perdure events off
    """
    _record(False, whom, json)


def _record(wanted: bool, whom: Whom, json: bool) -> None:
    async def ask(app: AsyncPerdure) -> FeedView:
        return await app.record_events(wanted)

    feed = call(whom, ask, makes=wanted)
    if json:
        show_json(feed)
    else:
        print("recording" if feed.recording else "not recording")


@cli.command()
@spread
def tail(
    begin: Annotated[
        str, typer.Option("--from", help='The id of an event, or "oldest"; without it from now on.', metavar="ID")
    ] = "",
    types: Types = None,
    limit: Limit = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Print events as they happen, until interrupted.

    Example: perdure events tail --from oldest --type task.failed
    """

    async def ask(app: AsyncPerdure) -> None:
        left = limit
        async for event in app.events(begin, types or ()):
            _show(event, json)
            left = None if left is None else left - 1
            if left == 0:
                return

    call(whom, ask)


def _show(event: Event, json: bool) -> None:
    if json:
        show_json(event)
    else:
        data = event.data
        about, why = data.workflow_id or event.subject, data.failure_type or data.reason or ""
        print(event.id, time(event.time), event.type, about, data.type, why, sep="  ")
    sys.stdout.flush()


@spread
def stream(
    id: Annotated[str, typer.Argument(help="Task id.")],
    offset: Annotated[int, typer.Option(min=0, help="The number of the first chunk.")] = 0,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Print what a task's handler writes to its stream, as it writes it, to the end of the task.

    Example: perdure tasks stream 01a22c60-3b9a-7000-9de6-012d84a3cb20
    """

    async def ask(app: AsyncPerdure) -> None:
        async for chunk in app.stream(id, offset):
            if chunk.restarted and not json:
                print(f"\nrestarted: attempt {chunk.attempt}", file=sys.stderr)
            _print(chunk, json)

    call(whom, ask)


def _print(chunk: Chunk, json: bool) -> None:
    value: Any = chunk.value
    if json:
        shown = value if not isinstance(value, bytes) else Payload({"encoding": "binary/plain"}, value)
        show_json({"offset": chunk.offset, "attempt": chunk.attempt, "value": shown})
    elif isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    elif isinstance(value, str):
        print(value, end="")
    else:
        show_json(value)
    sys.stdout.flush()
