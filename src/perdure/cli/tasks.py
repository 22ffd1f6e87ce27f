"""`perdure tasks`: enqueue, look, wait, cancel and retry from a shell. See exits.py for exit statuses."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.table import Column, Table

from perdure.app import AsyncPerdure
from perdure.core.messages import TaskView
from perdure.core.model import Payloads
from perdure.sdk.converter import from_payloads

cli = typer.Typer(help="Tasks of a server.", no_args_is_help=True)

T = TypeVar("T")

Server = Annotated[str, typer.Option(envvar="PERDURE_SERVER", help="URL of the server, or of a store.")]
ApiKey = Annotated[str | None, typer.Option(envvar="PERDURE_API_KEY")]
Namespace = Annotated[str | None, typer.Option(help="For servers without API keys.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]
Id = Annotated[str, typer.Argument(help="Id of the task.")]

LOCAL = "http://127.0.0.1:7400"
WIDE = 120
"""Columns of a terminal that has room for all columns of a list."""


@cli.command()
def enqueue(
    name: Annotated[str, typer.Argument(help="Name of the task.")],
    payload: Annotated[str, typer.Argument(help="JSON; - reads it from standard input.")] = "null",
    queue: Annotated[str, typer.Option()] = "default",
    key: Annotated[str | None, typer.Option(help="Idempotency key: a repeat answers the first task.")] = None,
    delay: Annotated[str | None, typer.Option(help='Such as "90s" or "1h30m".')] = None,
    priority: Annotated[int, typer.Option(min=1, max=5, help="1 first, 5 last.")] = 3,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Enqueue a task and print its id.

    Example: perdure tasks enqueue resize_image '{"path": "a.png"}' --key a.png
    """
    text = sys.stdin.read() if payload == "-" else payload
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"the payload is not JSON: {error}") from None

    async def ask(app: AsyncPerdure) -> tuple[str, bool]:
        job = await app.enqueue(name, value, idempotency_key=key, queue=queue, delay=delay, priority=priority)
        return job.id, job.duplicate

    id, duplicate = _call(server, api_key, namespace, ask)
    _show_json({"task_id": id, "duplicate": duplicate}) if json else print(id)


@cli.command()
def get(
    id: Id, server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False
) -> None:
    """Show a task with its attempts, result or failure.

    Example: perdure tasks get 01a22c60-3b9a-7000-9de6-012d84a3cb20
    """
    view = _call(server, api_key, namespace, lambda app: app.get(id))
    _show_json(_plain(view)) if json else _show(view)


@cli.command("list")
def list_tasks(
    state: Annotated[str | None, typer.Option(help="Such as ENQUEUED or FAILED.")] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    type: Annotated[str | None, typer.Option(help="Name of the task.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Created then or later, in local time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="The `next` of the page before.")] = None,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """List tasks, newest first.

    Example: perdure tasks list --state FAILED --queue mail
    """
    page = _call(
        server,
        api_key,
        namespace,
        lambda app: app.find(
            state=state,
            queue=queue,
            type=type,
            since=None if since is None else since.astimezone(),
            limit=limit,
            cursor=cursor,
        ),
    )
    if json:
        _show_json({"tasks": [_plain(view) for view in page.tasks], "next": page.next})
        return
    _show_table(page.tasks)
    if page.next:
        print(f"more: --cursor {page.next}")


@cli.command()
def cancel(
    id: Id,
    reason: Annotated[str, typer.Option()] = "",
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Cancel a task: at once while it waits, cooperatively while it runs.

    Example: perdure tasks cancel 01a22c60-3b9a-7000-9de6-012d84a3cb20 --reason "wrong file"
    """
    reply = _call(server, api_key, namespace, lambda app: app.cancel(id, reason))
    _show_json(reply) if json else print(reply.job_state)


@cli.command()
def retry(
    id: Id, server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False
) -> None:
    """Run a task again: a waiting one now, a closed one as a new task. Prints the id of the task that runs.

    Example: perdure tasks retry 01a22c60-3b9a-7000-9de6-012d84a3cb20
    """
    job = _call(server, api_key, namespace, lambda app: app.retry(id))
    _show_json({"task_id": job.id}) if json else print(job.id)


@cli.command()
def wait(
    id: Id,
    timeout: Annotated[str | None, typer.Option(help='Such as "60s"; without it as long as it takes.')] = None,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
) -> None:
    """Wait for a task and print its result as JSON; the exit status tells how it closed.

    Example: perdure tasks wait 01a22c60-3b9a-7000-9de6-012d84a3cb20 --timeout 60s
    """
    _show_json(_call(server, api_key, namespace, lambda app: app.job(id).result(timeout)))


def _call(server: str, api_key: str | None, namespace: str | None, ask: Callable[[AsyncPerdure], Awaitable[T]]) -> T:
    async def run() -> T:
        async with AsyncPerdure(server, api_key=api_key, namespace=namespace) as app:
            return await ask(app)

    return asyncio.run(run())


def _show_json(value: Any) -> None:
    print(msgspec.json.encode(value).decode())


def _plain(view: TaskView) -> dict[str, Any]:
    """A task as JSON, with payload and result as values where they are JSON themselves."""
    plain: dict[str, Any] = msgspec.to_builtins(view)
    plain["payload"], plain["result"] = _value(view.payload), _value(view.result)
    return {name: value for name, value in plain.items() if value is not None}


def _value(payloads: Payloads | None) -> Any:
    return None if payloads is None else msgspec.to_builtins(from_payloads(payloads, "payload"))


def _show_table(views: Sequence[TaskView]) -> None:
    """Nothing is cut off, because it would be what somebody copies or looks for: names wrap, and a narrow terminal has
    fewer columns."""
    console = Console(highlight=False, markup=False)
    wide = console.width >= WIDE
    table = Table(Column("id", no_wrap=True), Column("state", no_wrap=True), box=None, pad_edge=False)
    if wide:
        table.add_column("attempt", no_wrap=True)
        table.add_column("created", no_wrap=True)
    table.add_column("type", overflow="fold")
    table.add_column("queue", overflow="fold")
    for view in views:
        created = view.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        more = (f"{view.attempt}/{view.max_attempts}", created) if wide else ()
        table.add_row(view.task_id, view.state, *more, view.type, view.queue)
    console.print(table)


def _show(view: TaskView) -> None:
    table = Table("field", Column("value", overflow="fold"), show_header=False, box=None)
    for name, value in _plain(view).items():
        if name == "failure":
            failure = view.failure
            value = "" if failure is None else f"{failure.code}: {failure.type}: {failure.message}\n{failure.stack}"
        elif name == "attempts":
            value = "\n".join(f"{a.attempt} {a.outcome} on {a.worker}" for a in view.attempts)
        if value not in ("", {}, []):
            table.add_row(name, str(value))
    Console(highlight=False, markup=False).print(table)
