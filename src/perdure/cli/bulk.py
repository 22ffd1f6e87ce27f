"""What `perdure tasks retry`, `cancel` and `delete`, and `perdure workflows cancel` and `terminate`, do with --where:
count first, ask, begin, and wait for the end."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Whom, call
from perdure.cli.show import show_json
from perdure.cli.values import time_value
from perdure.core.failure_messages import BulkFilter, BulkView
from perdure.sdk.bulk import AsyncBulk

Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="All that have this state, queue, type, since, failure_group, error or query; may be given several times.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --where: only count them.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --where: do not ask.")]

Action = Literal["retry", "cancel", "delete", "cancel_runs", "terminate_runs"]

_DONE = {
    "retry": "retried", "cancel": "canceled", "delete": "deleted", "cancel_runs": "asked to end",
    "terminate_runs": "terminated",
}  # fmt: skip


class Target:
    """How a command says what it is about: an id, or --where."""

    def __init__(self, id: str | None, where: list[str] | None, *, dry_run: bool, yes: bool) -> None:
        if (id is None) == (where is None):
            raise typer.BadParameter("give either an id, or --where NAME=VALUE")
        if id is not None and (dry_run or yes):
            raise typer.BadParameter("--dry-run and --yes go with --where")
        self.filter = job_filter(where or [])
        self.dry_run = dry_run
        self.yes = yes


def job_filter(where: list[str]) -> dict[str, Any]:
    """The filter that NAME=VALUE, several times, says."""
    found: dict[str, Any] = {}
    for part in where:
        name, given, value = part.partition("=")
        if not given or name not in BulkFilter.__struct_fields__:
            known = ", ".join(BulkFilter.__struct_fields__)
            raise typer.BadParameter(f"{part!r} is no NAME=VALUE; names are {known}")
        if name in found:
            raise typer.BadParameter(f"{name} is given twice")
        found[name] = time_value(value) if name == "since" else value
    if "state" in found:
        found["state"] = str(found["state"]).upper()
    return found


def act(action: Action, target: Target, whom: Whom, *, json: bool, reason: str = "") -> None:
    """Exit status 1 when some jobs were left as they are."""

    async def ask(app: AsyncPerdure) -> BulkView:
        counted = await _count(app, action, target.filter)
        if target.dry_run:
            return counted
        _confirm(action, counted, yes=target.yes)
        bulk = await _begin(app, action, target.filter, reason)
        print(f"action {bulk.id}; it goes on if this command is interrupted", file=sys.stderr)
        return await bulk.result()

    view = call(whom, ask)
    if json:
        show_json(view)
    elif target.dry_run:
        print(f"{_jobs(view)} would be {_DONE[action]}")
    else:
        print(f"{view.done} {_DONE[action]}, {view.failed} left as they are")
        for one in view.errors:
            print(f"{one.task_id}  {one.error.code}: {one.error.detail}", file=sys.stderr)
    if view.failed:
        raise typer.Exit(1)


async def _count(app: AsyncPerdure, action: Action, filter: dict[str, Any]) -> BulkView:
    match action:
        case "cancel_runs":
            return await app.count_runs("cancel", **filter)
        case "terminate_runs":
            return await app.count_runs("terminate", **filter)
        case _:
            return await app.count_tasks(action, **filter)


async def _begin(app: AsyncPerdure, action: Action, filter: dict[str, Any], reason: str) -> AsyncBulk:
    match action:
        case "retry":
            return await app.retry_tasks(**filter)
        case "cancel":
            return await app.cancel_tasks(reason, **filter)
        case "delete":
            return await app.delete_tasks(**filter)
        case "cancel_runs":
            return await app.cancel_workflows(reason, **filter)
        case "terminate_runs":
            return await app.terminate_workflows(reason, **filter)


def _confirm(action: str, counted: BulkView, *, yes: bool) -> None:
    if yes:
        return
    question = f"{action.removesuffix('_runs')} {_jobs(counted)}"
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"this would {question}: say --yes, or --dry-run to see the number only")
    typer.confirm(f"{question}?", abort=True, err=True)


def _jobs(counted: BulkView) -> str:
    noun = "run" if counted.action.endswith("_runs") else "job"
    return f"{counted.total}{'+' if counted.at_least else ''} {noun}{'' if counted.total == 1 else 's'}"
