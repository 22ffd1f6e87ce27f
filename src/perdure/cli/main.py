"""`perdure`: servers, workers, and a look at tasks from a shell."""

from __future__ import annotations

import asyncio
import logging
import sys
from enum import StrEnum
from importlib.metadata import version
from typing import Annotated

import typer
import uvloop

from perdure import app as perdure
from perdure import database
from perdure.cli import (
    doctor,
    events,
    exits,
    failures,
    keys,
    limits,
    lint,
    look,
    queues,
    replay,
    schedules,
    search,
    signals,
    tasks,
    webhooks,
    worker,
    workflows,
)
from perdure.cli.advice import advice
from perdure.cli.ask import Json
from perdure.cli.logs import LogFormat, LogFormatOption, choose
from perdure.cli.show import show_json
from perdure.cli.store import RETENTION, RetentionOption, StoreOption, kept_seconds, shown, using
from perdure.core.errors import PerdureError, TaskCanceled
from perdure.sdk.logs import TaskLogFilter

PORT = 7400

cli = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, epilog=exits.TABLE)
cli.add_typer(tasks.cli, name="tasks")
cli.add_typer(workflows.cli, name="workflows")
cli.add_typer(schedules.cli, name="schedules")
cli.add_typer(keys.cli, name="keys")
cli.add_typer(queues.cli, name="queues")
cli.add_typer(limits.cli, name="limits")
cli.add_typer(failures.cli, name="failures")
cli.add_typer(events.cli, name="events")
cli.add_typer(webhooks.cli, name="webhooks")
cli.add_typer(search.cli, name="search-attributes")
tasks.cli.command("stream")(events.stream)
cli.command("worker")(worker.work)
cli.command("dev")(worker.develop)
cli.command("workers")(look.workers)
cli.command("doctor")(doctor.doctor)
cli.command("golden-signals")(signals.golden_signals)
cli.command("replay")(replay.replay)
cli.command("lint", epilog=lint.RULES)(lint.lint)

log = logging.getLogger("perdure.cli")


class DashboardMode(StrEnum):
    """What a server shows to browsers."""

    ON = "on"
    READ_ONLY = "read-only"
    OFF = "off"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"perdure {version('perdure')}")
        raise typer.Exit


@cli.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Durable background jobs on a SQLite file or on PostgreSQL."""


@cli.command()
def server(
    store: StoreOption,
    host: Annotated[str, typer.Option(help="Beyond this machine only with API keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = PORT,
    retention: RetentionOption = RETENTION,
    max_history_events: Annotated[
        int | None, typer.Option(help="Of a workflow run; then its code has to continue as new. 50,000 by default.")
    ] = None,
    webhooks_to_private: Annotated[
        bool, typer.Option("--webhooks-to-private", help="Let webhooks lead to private and local addresses.")
    ] = False,
    dashboard: Annotated[DashboardMode, typer.Option(help="Pages for a browser, at the server's URL.")] = (
        DashboardMode.ON
    ),
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Run a server.

    Example: perdure server --store sqlite:///jobs.db
    """
    choose(log_format)

    def started(url: str) -> None:
        print(f"perdure {version('perdure')}, store {shown(store)}: perdure server on {url}", flush=True)

    options = database.EngineOptions(retention=kept_seconds(retention), webhooks_to_private=webhooks_to_private)
    if max_history_events is not None:
        options["max_history_events"] = max_history_events
    from perdure.dashboard import site  # other commands need no templates

    invite = None if dashboard is DashboardMode.OFF else site.invite(read_only=dashboard is DashboardMode.READ_ONLY)
    with using(store):
        uvloop.run(perdure.serve(perdure.running_server(store, host, port, invite, **options), started))
    log.info("perdure server stopped")


@cli.command()
def migrate(store: StoreOption, json: Json = False) -> None:
    """Bring the schema of a store up to date.

    Example: perdure migrate --store postgresql://localhost/jobs
    """
    with using(store):
        applied = asyncio.run(database.migrate(store))
    if json:
        show_json({"applied": applied})
    else:
        print(f"applied {', '.join(applied)}" if applied else "nothing to do")


def main() -> None:
    """The command's entry point; see exits.py for its exit statuses."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(task)s%(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(TaskLogFilter())
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # it reports each connection
    try:
        cli()
    except PerdureError as error:
        report(error)
        sys.exit(exits.status(error))


def report(error: PerdureError) -> None:
    """Say on standard error what went wrong and, below it, what to do."""
    reason = isinstance(error, TaskCanceled) and error.detail != error.title  # somebody's words, without a context
    what = f"{error.title}: {error.detail}" if reason else error.detail
    print(f"error {error.code}: {what}", file=sys.stderr)
    if what_to_do := advice(error):
        print(f"  what to do: {what_to_do}", file=sys.stderr)


if __name__ == "__main__":
    main()
