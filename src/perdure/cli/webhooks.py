"""`perdure webhooks`: where events are sent, from a shell. See exits.py for exit statuses."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Json, Whom, call
from perdure.cli.events import Types
from perdure.cli.options import spread
from perdure.cli.show import show_json, time
from perdure.cli.values import time_value
from perdure.core.event_messages import DeadLetterView, PingReply, WebhookView

cli = typer.Typer(help="Send events to URLs.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="Id of the webhook.")]
From = Annotated[
    str, typer.Option("--from", help='Behind the event of this id, or "oldest".', metavar="ID", show_default=False)
]


@cli.command()
@spread
def add(
    url: Annotated[str, typer.Argument(help="https, or http.")],
    types: Types = None,
    begin: From = "",
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Send events to a URL, from now on or from behind one. Prints its id and the secret of its signatures, which is
    shown this once.

    Example: perdure webhooks add https://shop.example/hooks --type task.failed
    """

    async def ask(app: AsyncPerdure) -> WebhookView:
        return await app.add_webhook(url, types or (), begin)

    view = call(whom, ask, makes=True)
    if json:
        show_json(view)
    else:
        print(view.id, view.secret, sep="  ")


@cli.command("list")
@spread
def list_webhooks(*, whom: Whom, json: Json = False) -> None:
    """List webhooks, oldest first, and how they fare.

    Example: perdure webhooks list
    """

    async def ask(app: AsyncPerdure) -> list[WebhookView]:
        return await app.webhooks()

    views = call(whom, ask)
    if json:
        show_json({"webhooks": views})
        return
    for view in views:
        print(view.id, _state(view), view.url, ",".join(view.types) or "all", sep="  ")


def _state(view: WebhookView) -> str:
    if view.disabled_at is not None:
        return f"disabled ({view.note})" if view.note else "disabled"
    if view.failures:
        again = "" if view.retry_at is None else f", again at {time(view.retry_at)}"
        return f"failing ({view.failures} tries{again}: {view.last_error})"
    return "ok"


@cli.command()
@spread
def delete(id: Id, *, whom: Whom, json: Json = False) -> None:
    """Send nothing there any more, and forget its dead letters. Harmless when repeated.

    Example: perdure webhooks delete wh_5c1f0e6a9b3d47208f11
    """

    async def ask(app: AsyncPerdure) -> None:
        await app.delete_webhook(id)

    call(whom, ask)
    if json:
        show_json({})


@cli.command()
@spread
def disable(
    id: Id, note: Annotated[str, typer.Option(help="Why, for people.")] = "", *, whom: Whom, json: Json = False
) -> None:
    """Send nothing there until it is replayed.

    Example: perdure webhooks disable wh_5c1f0e6a9b3d47208f11 --note "the shop moves house"
    """

    async def ask(app: AsyncPerdure) -> WebhookView:
        return await app.disable_webhook(id, note)

    _show(call(whom, ask), json)


@cli.command()
@spread
def replay(
    id: Id,
    begin: From = "",
    since: Annotated[
        datetime | None, typer.Option(parser=time_value, metavar="TIME", help="Or events of then and later.")
    ] = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Enable it, and send events again; without --from and --since go on where it stopped, at once.

    Example: perdure webhooks replay wh_5c1f0e6a9b3d47208f11 --since 2026-11-30T08:00
    """

    async def ask(app: AsyncPerdure) -> WebhookView:
        return await app.replay_webhook(id, begin, since)

    _show(call(whom, ask), json)


def _show(view: WebhookView, json: bool) -> None:
    if json:
        show_json(view)
    else:
        print(view.id, _state(view), sep="  ")


@cli.command()
@spread
def ping(id: Id, *, whom: Whom, json: Json = False) -> None:
    """Send a "ping" there now; exit status 1 if it was not taken.

    Example: perdure webhooks ping wh_5c1f0e6a9b3d47208f11
    """

    async def ask(app: AsyncPerdure) -> PingReply:
        return await app.ping_webhook(id)

    reply = call(whom, ask)
    if json:
        show_json(reply)
    else:
        print(reply.detail, file=sys.stdout if reply.ok else sys.stderr)
    if not reply.ok:
        raise typer.Exit(1)


@cli.command()
@spread
def deadletters(
    id: Id, limit: Annotated[int, typer.Option(min=1, max=1000)] = 100, *, whom: Whom, json: Json = False
) -> None:
    """List the events that an endpoint did not take within a day of tries.

    Example: perdure webhooks deadletters wh_5c1f0e6a9b3d47208f11
    """

    async def ask(app: AsyncPerdure) -> list[DeadLetterView]:
        return await app.webhook_dead_letters(id, limit)

    letters = call(whom, ask)
    if json:
        show_json({"letters": letters})
        return
    for letter in letters:
        event = letter.event
        print(event.id, time(letter.given_up_at), event.type, event.subject, letter.error, sep="  ")
