"""`perdure tasks`: enqueue, look, wait, cancel, retry and delete from a shell. See exits.py for exit statuses."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Json, Whom, call
from perdure.cli.bulk import DryRun, Target, Where, Yes, act
from perdure.cli.options import spread
from perdure.cli.search import Query, show_count
from perdure.cli.show import plain, show_json, show_list, show_task
from perdure.cli.values import Since, json_value
from perdure.cli.watch import watched
from perdure.core.messages import TimeoutOptions
from perdure.core.model import RetryPolicy
from perdure.sdk.client import Edit

cli = typer.Typer(help="Enqueue, look at, wait for, cancel, retry and delete tasks.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="Id of the task.")]
OneOrMany = Annotated[str | None, typer.Argument(help="Id of the task; without it --where says which ones.")]


class State(StrEnum):
    """The states that a list can be asked for; see docs/states.md."""

    ENQUEUED = "ENQUEUED"
    LEASED = "LEASED"
    RETRY_WAIT = "RETRY_WAIT"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    EXPIRED = "EXPIRED"


@cli.command()
@spread
def enqueue(
    name: Annotated[str, typer.Argument(help="Name of the task.")],
    payload: Annotated[str, typer.Argument(help="JSON; - reads it from standard input.")] = "null",
    queue: Annotated[str, typer.Option()] = "default",
    key: Annotated[str | None, typer.Option(help="Idempotency key: a repeat answers the first task.")] = None,
    delay: Annotated[str | None, typer.Option(help='Such as "90s" or "1h30m".')] = None,
    priority: Annotated[int, typer.Option(min=1, max=5, help="1 first, 5 last.")] = 3,
    max_attempts: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Of the task; 5 if not given, 1 is no retry.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(help='Longest time of one attempt, such as "10m".')] = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Enqueue a task and print its id. What @task says of it is not known here: queue, retries, limits.

    Example: perdure tasks enqueue resize_image '{"path": "a.png"}' --key a.png
    """
    value = json_value(payload, "payload")

    async def ask(app: AsyncPerdure) -> tuple[str, bool]:
        job = await app.enqueue(
            name,
            value,
            idempotency_key=key,
            queue=queue,
            delay=delay,
            priority=priority,
            retry=None if max_attempts is None else RetryPolicy(max_attempts=max_attempts),
            timeouts=None if timeout is None else TimeoutOptions(start_to_close=timeout),
        )
        return job.id, job.duplicate

    id, duplicate = call(whom, ask, makes=True)
    show_json({"task_id": id, "duplicate": duplicate}) if json else print(id)


@cli.command()
@spread
def get(id: Id, *, whom: Whom, json: Json = False) -> None:
    """Show a task with its attempts, result or failure.

    Example: perdure tasks get 01a22c60-3b9a-7000-9de6-012d84a3cb20
    """
    view = call(whom, lambda app: app.get(id))
    show_json(plain(view)) if json else show_task(view)


@cli.command("list")
@spread
def list_tasks(
    state: Annotated[State | None, typer.Option(case_sensitive=False, help="In capitals or not.")] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    type: Annotated[str | None, typer.Option(help="Name of the task.")] = None,
    since: Since = None,
    query: Query = "",
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="The `next` of the page before.")] = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """List tasks, newest first.

    Example: perdure tasks list --state FAILED --queue mail
    """
    page = call(
        whom,
        lambda app: app.find(
            state=None if state is None else state.value,
            queue=queue,
            type=type,
            since=since,
            query=query,
            limit=limit,
            cursor=cursor,
        ),
    )
    if json:
        show_json({"tasks": [plain(view) for view in page.tasks], "next": page.next})
        return
    show_list(page.tasks)
    if page.next:
        print(f"more: --cursor {page.next}", file=sys.stderr)


@cli.command("count")
@spread
def count_tasks(
    state: Annotated[State | None, typer.Option(case_sensitive=False, help="In capitals or not.")] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    type: Annotated[str | None, typer.Option(help="Name of the task.")] = None,
    since: Since = None,
    query: Query = "",
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Count tasks, as far as 100,000.

    Example: perdure tasks count --query "ExecutionStatus = 'Failed' AND TaskQueue = 'mail'"
    """
    wanted = None if state is None else state.value
    found = call(
        whom,
        lambda app: app.count(state=wanted, queue=queue, type=type, since=since, query=query),
    )
    show_count(found, json=json)


@cli.command()
@spread
def cancel(
    id: OneOrMany = None,
    reason: Annotated[str, typer.Option()] = "",
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Cancel a task: at once while it waits, cooperatively while it runs. With --where all open ones that pass.

    Example: perdure tasks cancel 01a22c60-3b9a-7000-9de6-012d84a3cb20 --reason "wrong file"
    """
    target = Target(id, where, dry_run=dry_run, yes=yes)
    if id is None:
        act("cancel", target, whom, json=json, reason=reason)
        return
    reply = call(whom, lambda app: app.cancel(id, reason))
    show_json(reply) if json else print(reply.job_state)


@cli.command()
@spread
def retry(
    id: OneOrMany = None,
    payload: Annotated[str | None, typer.Option(help="JSON: another payload for one that is closed.")] = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Run a task again: a waiting one now, a closed one as a new task, whose id is printed.

    With --where all closed ones that pass, dead letters unless a state is given.

    Example: perdure tasks retry 01a22c60-3b9a-7000-9de6-012d84a3cb20
    """
    target = Target(id, where, dry_run=dry_run, yes=yes)
    edit: Edit = {} if payload is None else {"payload": json_value(payload, "payload")}
    if id is None:
        if edit:
            raise typer.BadParameter("--payload goes with one task")
        act("retry", target, whom, json=json)
        return
    job = call(whom, lambda app: app.retry(id, **edit))
    show_json({"task_id": job.id}) if json else print(job.id)


@cli.command()
@spread
def delete(where: Where, dry_run: DryRun = False, yes: Yes = False, *, whom: Whom, json: Json = False) -> None:
    """Delete all closed tasks that pass, before their retention is over.

    Example: perdure tasks delete --where state=CANCELED --where type=resize_image --yes
    """
    act("delete", Target(None, where, dry_run=dry_run, yes=yes), whom, json=json)


@cli.command()
@spread
def wait(
    id: Id,
    timeout: Annotated[str | None, typer.Option(help='Such as "60s"; without it as long as it takes.')] = None,
    *,
    whom: Whom,
    json: Annotated[bool, typer.Option("--json", help="Changes nothing: a result is JSON.")] = False,
) -> None:
    """Wait for a task and print its result as JSON; the exit status tells how it closed.

    On a terminal its progress is shown meanwhile.

    Example: perdure tasks wait 01a22c60-3b9a-7000-9de6-012d84a3cb20 --timeout 60s
    """
    show_json(call(whom, lambda app: watched(app, id, timeout)))
