"""`perdure worker` and `perdure dev`: processes that run an application's tasks."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from perdure import app as perdure
from perdure.app import AsyncPerdure
from perdure.cli.exits import HOPELESS, USAGE
from perdure.cli.load import folder, load
from perdure.cli.logs import LogFormat, LogFormatOption, choose
from perdure.cli.store import RETENTION, RetentionOption, kept_seconds, shown, using

DEV_STORE = "sqlite:///perdure-dev.db"

Target = Annotated[str, typer.Argument(help="app.py or a module, with :NAME if it has several Perdure objects.")]
Server = Annotated[str | None, typer.Option(envvar="PERDURE_SERVER", help="Instead of the Perdure object's URL.")]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", help="What to poll, the first first; may be repeated. All that its tasks declare by default."
    ),
]
Slots = Annotated[int, typer.Option(min=1, help="Handlers at once, in each process.")]
Processes = Annotated[int, typer.Option(min=1, help="How many processes.")]
_SIZE = re.compile(r"(\d+)([KMG]?)B?", re.IGNORECASE)


def _bytes(text: str) -> int:
    """A size such as "512M" or "2G", or bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size such as 512M or 2G")
    return int(match[1]) << 10 * ["", "K", "M", "G"].index(match[2].upper())


def _address(text: str) -> tuple[str, int]:
    """HOST:PORT, or a port of this machine only."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise typer.BadParameter(f"{text!r} is no HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def work(
    target: Target,
    server: Server = None,
    queue: Queues = None,
    slots: Slots = 100,
    processes: Processes = 1,
    process_slots: Annotated[
        int | None, typer.Option(min=1, help="Handlers of @task(process=True) at once; all cores by default.")
    ] = None,
    drain: Annotated[float, typer.Option(help="Seconds that handlers may go on after SIGTERM.")] = 25.0,
    max_tasks: Annotated[int | None, typer.Option(min=1, help="Replace a process after so many tasks.")] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(parser=_bytes, metavar="SIZE", help="Replace a process that has more, such as 512M."),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Answer GET /live, /ready and /metrics there."),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start again when a source file changes.")] = False,
    api_key: Annotated[str | None, typer.Option(envvar="PERDURE_API_KEY")] = None,
    namespace: Annotated[str | None, typer.Option(help="Instead of the Perdure object's.")] = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    supervised: Annotated[bool, typer.Option("--supervised", hidden=True)] = False,
) -> None:
    """Run the tasks of an application, in supervised processes.

    SIGTERM drains: handlers may end, the rest is handed back. A second one exits at once.

    Example: perdure worker app.py --server http://127.0.0.1:7400 --queue mail --queue default
    """
    choose(log_format)
    address = None if health is None else _address(health)
    _, found = load(target)
    if server is None and found is None:
        raise typer.BadParameter(f"{target} has no Perdure object; give --server")
    url = server or (found.url if found is not None else "")
    if url.endswith(":memory:"):
        raise typer.BadParameter("a store in memory cannot be shared with another process")
    with using(url):
        app = AsyncPerdure(
            url,
            namespace=namespace or (found.namespace if found is not None else None),
            api_key=api_key or (found.api_key if found is not None else None),
            **(found.extensions if found is not None else {}),
        )
    if supervised:
        working = app.run_worker(
            queues=queue,
            slots=slots,
            process_slots=process_slots,
            drain_seconds=drain,
            max_tasks=max_tasks,
            max_memory=max_memory,
        )
        uvloop.run(_work(app, working))
    else:
        command = [sys.executable, "-m", "perdure", *sys.argv[1:], "--supervised"]
        files = folder(target) if reload else None
        raise typer.Exit(uvloop.run(_supervise(app, command, processes, files, address)))


def develop(
    target: Target,
    queue: Queues = None,
    slots: Slots = 100,
    port: Annotated[int, typer.Option(help="Of the server, on this machine only.")] = 7400,
    retention: RetentionOption = RETENTION,
) -> None:
    """Run a server and a worker for development; the worker starts again when a source file changes.

    The store is the Perdure object's, if that names one, else the file perdure-dev.db.

    Example: perdure dev app.py
    """
    _, found = load(target)
    store = found.url if found is not None and "://" in found.url and not found.url.startswith("http") else DEV_STORE
    command = [sys.executable, "-m", "perdure", "worker", target, "--slots", str(slots), "--drain", "5", "--supervised"]
    for name in queue or []:
        command += ["--queue", name]
    kept = kept_seconds(retention)
    with using(store):
        status = uvloop.run(_develop(store, port, kept, command, folder(target)))
    raise typer.Exit(status)


async def _work(app: AsyncPerdure, working: Awaitable[None]) -> None:
    async with app:
        await working


async def _supervise(
    app: AsyncPerdure, command: list[str], processes: int, files: Path | None, health: tuple[str, int] | None
) -> int:
    # A file with an error in it is about to be saved again.
    hopeless = HOPELESS if files is None else HOPELESS - {USAGE}
    async with app:
        return await app.supervise(command, processes, hopeless, files, health)


async def _develop(store: str, port: int, kept: float, command: list[str], files: Path) -> int:
    from perdure.dashboard.site import invite  # other commands need no templates

    serving = perdure.running_server(store, "127.0.0.1", port, invite(), retention=kept, webhooks_to_private=True)
    async with serving as url, AsyncPerdure(url) as app:
        # A file with an error in it is about to be saved again.
        supervised = app.supervise([*command, "--server", url], 1, HOPELESS - {USAGE}, files)
        supervising = asyncio.create_task(supervised)
        await asyncio.sleep(0)  # from here on it hears signals
        print(f"perdure server on {url}, store {shown(store)}; watching {files}", flush=True)
        return await supervising
