"""`perdure failures`: what failed for good, grouped by what is alike."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import plain, show_json, show_list, show_table, show_task, time
from perdure.core.errors import NotFound
from perdure.core.failure_messages import FailureGroup
from perdure.core.messages import TaskView

cli = typer.Typer(help="Look at what failed for good and nobody has retried.", no_args_is_help=True)

_SHOWN = 20
"""Tasks of a group that are listed."""


@cli.command("list")
@spread
def list_failures(
    type: Annotated[str | None, typer.Option(help="Name of the task or workflow.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """List groups of dead letters, those that grew last first. Counts stop at 10,000: "10000+".

    Example: perdure failures list
    """
    groups = call(whom, lambda app: app.failures(type, limit))
    if json:
        show_json({"groups": groups})
        return
    titles = ("group", "count", "last", "type", "error", "message")
    show_table(titles, [_row(group) for group in groups])


def _row(group: FailureGroup) -> tuple[str, ...]:
    count = f"{group.count}{'+' if group.at_least else ''}"
    return (group.group, count, time(group.last_seen), group.type, group.error, group.message)


@cli.command()
@spread
def show(
    group: Annotated[str, typer.Argument(help="The group, as `perdure failures list` shows it.")],
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Show a group: its newest jobs, and the last of them with its payload, attempts and stack.

    Example: perdure failures show 7903f0ad214c2a6e
    """

    async def ask(app: AsyncPerdure) -> tuple[list[TaskView], TaskView]:
        tasks = (await app.find(failure_group=group, limit=_SHOWN)).tasks
        if not tasks:
            raise NotFound("there is no job in this group that nobody has retried", field="failure_group")
        return tasks, await app.get(tasks[0].task_id)

    tasks, last = call(whom, ask)
    if json:
        show_json({"tasks": [plain(view) for view in tasks], "last": plain(last)})
        return
    show_list(tasks)
    print()
    show_task(last)
