"""`perdure workflows`: start, look at, signal, query, update, mend and end workflows from a shell. See exits.py for
exit statuses."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Json, Whom, call
from perdure.cli.bulk import DryRun, Target, Where, Yes, act
from perdure.cli.options import spread
from perdure.cli.search import Query, show_count
from perdure.cli.show import show_json
from perdure.cli.show_workflow import plain_run, show_events, show_run, show_runs
from perdure.cli.values import Since, json_value
from perdure.sdk.run_handle import AsyncWorkflowHandle

cli = typer.Typer(help="Start, look at, signal, query, update, mend and end workflows.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="Id of the workflow.")]
OneOrMany = Annotated[str | None, typer.Argument(help="Id of the workflow; without it --where says which runs.")]
Run = Annotated[str | None, typer.Option("--run-id", help="One certain run; the current one without it.")]
Input = Annotated[str, typer.Argument(help="JSON; - reads it from standard input.")]
Timeout = Annotated[str | None, typer.Option(help='Such as "60s"; without it as long as it takes.')]


class Status(StrEnum):
    """What a list can be asked for."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TERMINATED = "TERMINATED"
    TIMED_OUT = "TIMED_OUT"
    CONTINUED_AS_NEW = "CONTINUED_AS_NEW"


class Conflict(StrEnum):
    """While a run of the id is open."""

    FAIL = "fail"
    USE_EXISTING = "use_existing"
    TERMINATE_EXISTING = "terminate_existing"


class Reuse(StrEnum):
    """Once the last run of the id has closed."""

    ALLOW_DUPLICATE = "allow_duplicate"
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    REJECT_DUPLICATE = "reject_duplicate"


@cli.command()
@spread
def start(
    name: Annotated[str, typer.Argument(help="Name of the workflow.")],
    input: Input = "null",
    id: Annotated[str | None, typer.Option(help="Workflow id; a random one without it.")] = None,
    queue: Annotated[str, typer.Option()] = "default",
    delay: Annotated[str | None, typer.Option(help='Before it begins, such as "90s" or "1h30m".')] = None,
    run_timeout: Annotated[str | None, typer.Option(help="Longest time of one run.")] = None,
    execution_timeout: Annotated[str | None, typer.Option(help="Longest time of all its runs together.")] = None,
    cron: Annotated[str, typer.Option(help="Repeat it by this expression, in UTC.")] = "",
    id_conflict: Annotated[Conflict, typer.Option(help="If a run of the id is open.")] = Conflict.FAIL,
    id_reuse: Annotated[Reuse, typer.Option(help="If the last run of the id has closed.")] = Reuse.ALLOW_DUPLICATE,
    priority: Annotated[int, typer.Option(min=1, max=5, help="1 first, 5 last.")] = 3,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Start a workflow and print its id.

    Example: perdure workflows start fulfil '{"order": 4711}' --id order-4711
    """
    value = json_value(input, "input")

    async def ask(app: AsyncPerdure) -> AsyncWorkflowHandle:
        return await app.start_workflow(
            name,
            value,
            id=id,
            queue=queue,
            start_delay=delay,
            run_timeout=run_timeout,
            execution_timeout=execution_timeout,
            cron=cron,
            id_conflict=id_conflict.value,
            id_reuse=id_reuse.value,
            priority=priority,
        )

    run = call(whom, ask, makes=True)
    if json:
        show_json({"workflow_id": run.id, "run_id": run.run_id, "started": run.started})
    else:
        print(run.id)


@cli.command("list")
@spread
def list_workflows(
    status: Annotated[Status | None, typer.Option(case_sensitive=False, help="In capitals or not.")] = None,
    open: Annotated[bool, typer.Option("--open", help="Leave out closed runs.")] = False,
    type: Annotated[str | None, typer.Option(help="Name of the workflow.")] = None,
    id: Annotated[str | None, typer.Option(help="Workflow id.")] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    since: Since = None,
    lacks_version: Annotated[
        str | None, typer.Option(help="Open runs of the --type without a marker of this version id.")
    ] = None,
    requires_intervention: Annotated[
        bool,
        typer.Option(
            "--requires-intervention", help="Closed runs whose compensations failed or did not run, not yet resolved."
        ),
    ] = False,
    query: Query = "",
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="The `next` of the page before.")] = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """List runs, newest first.

    Example: perdure workflows list --open --type fulfil
    """
    page = call(
        whom,
        lambda app: app.list_workflows(
            status=None if status is None else status.value,
            type=type,
            workflow_id=id,
            queue=queue,
            since=since,
            limit=limit,
            cursor=cursor,
            query=query,
            lacks_version=lacks_version,
            open=open,
            requires_intervention=requires_intervention,
        ),
    )
    if json:
        show_json({"workflows": [plain_run(view) for view in page.workflows], "next": page.next})
        return
    show_runs(page.workflows)
    if page.next:
        print(f"more: --cursor {page.next}", file=sys.stderr)


@cli.command("count")
@spread
@spread
def count_workflows(
    status: Annotated[Status | None, typer.Option(case_sensitive=False, help="In capitals or not.")] = None,
    open: Annotated[bool, typer.Option("--open", help="Leave out closed runs.")] = False,
    type: Annotated[str | None, typer.Option(help="Name of the workflow.")] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    since: Since = None,
    query: Query = "",
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Count runs, as far as 100,000.

    Example: perdure workflows count --query "WorkflowType = 'fulfil' AND ExecutionStatus = 'Running'"
    """
    wanted = None if status is None else status.value
    found = call(
        whom,
        lambda app: app.count_workflows(status=wanted, open=open, type=type, queue=queue, since=since, query=query),
    )
    show_count(found, json=json)


@cli.command()
@spread
def get(id: Id, run_id: Run = None, *, whom: Whom, json: Json = False) -> None:
    """Show a run and what it waits for.

    Example: perdure workflows get order-4711
    """
    view = call(whom, lambda app: app.get_workflow_handle(id, run_id).describe())
    show_json(plain_run(view)) if json else show_run(view)


@cli.command()
@spread
def history(
    id: Id,
    run_id: Run = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Newest first.")] = False,
    *,
    whom: Whom,
    json: Annotated[bool, typer.Option("--json", help="Whole, for programs and for `perdure replay`.")] = False,
) -> None:
    """Show the events of a run, a line each.

    Example: perdure workflows history order-4711
    """
    found = call(whom, lambda app: app.get_workflow_handle(id, run_id).history())
    if json:
        print(found.to_json().decode())
    else:
        show_events(found.events[::-1] if reverse else found.events)


@cli.command()
@spread
def result(
    id: Id,
    timeout: Timeout = None,
    run_id: Run = None,
    *,
    whom: Whom,
    json: Annotated[bool, typer.Option("--json", help="Changes nothing: a result is JSON.")] = False,
) -> None:
    """Wait for a workflow and print its result as JSON; the exit status tells how it ended.

    Example: perdure workflows result order-4711 --timeout 60s
    """
    show_json(call(whom, lambda app: app.get_workflow_handle(id, run_id).result(timeout)))


@cli.command()
@spread
def signal(
    id: Id,
    name: Annotated[str, typer.Argument(help="Name of the signal.")],
    input: Input = "null",
    run_id: Run = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Send a signal. It is kept when this ends.

    Example: perdure workflows signal order-4711 approve '{"by": "bob"}'
    """
    value = json_value(input, "input")
    call(whom, lambda app: app.get_workflow_handle(id, run_id).signal(name, value))
    show_json({"workflow_id": id}) if json else print("signaled")


@cli.command()
@spread
def query(
    id: Id,
    name: Annotated[str, typer.Argument(help="Name of the query.")],
    input: Input = "null",
    timeout: Annotated[str, typer.Option(help="At most 25s.")] = "10s",
    run_id: Run = None,
    *,
    whom: Whom,
    json: Annotated[bool, typer.Option("--json", help="Changes nothing: an answer is JSON.")] = False,
) -> None:
    """Ask the code of a run something, and print its answer as JSON. Needs a worker.

    Example: perdure workflows query order-4711 status
    """
    value = json_value(input, "input")
    show_json(
        call(
            whom,
            lambda app: app.get_workflow_handle(id, run_id).query(name, value, timeout=timeout),
        )
    )


@cli.command()
@spread
def update(
    id: Id,
    name: Annotated[str, typer.Argument(help="Name of the update.")],
    input: Input = "null",
    update_id: Annotated[str | None, typer.Option(help="The same id is the same update, however often sent.")] = None,
    start: Annotated[str | None, typer.Option(help="Start this workflow if no run of the id is open.")] = None,
    start_input: Annotated[str, typer.Option(help="JSON for that start.")] = "null",
    queue: Annotated[str | None, typer.Option(help="Of that start.")] = None,
    timeout: Timeout = None,
    run_id: Run = None,
    *,
    whom: Whom,
    json: Annotated[bool, typer.Option("--json", help="Changes nothing: an answer is JSON.")] = False,
) -> None:
    """Have the code of a run change something, and print its answer as JSON. Needs a worker. With --start the run is
    started if need be, in one transaction with the update.

    Example: perdure workflows update order-4711 change_address '{"city": "Ulm"}' --timeout 60s
    """
    value, start_value = json_value(input, "input"), json_value(start_input, "start-input")

    async def ask(app: AsyncPerdure) -> Any:
        if start is None:
            return await app.get_workflow_handle(id, run_id).update(name, value, id=update_id, timeout=timeout)
        return await app.update_with_start(
            start,
            start_value,
            id=id,
            update=name,
            update_input=value,
            update_id=update_id,
            timeout=timeout,
            queue=queue,
        )

    if start is not None and run_id is not None:
        raise typer.BadParameter("--start is about the current run, and --run-id names another", param_hint="--run-id")
    show_json(call(whom, ask, makes=start is not None))


@cli.command()
@spread
def cancel(
    id: OneOrMany = None,
    reason: Annotated[str, typer.Option()] = "",
    run_id: Run = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Ask the code of a run to end; it may clean up first. With --where those of all open runs that pass.

    Example: perdure workflows cancel order-4711 --reason "the customer called"
    """
    target = Target(id, where, dry_run=dry_run, yes=yes)
    if id is None:
        if run_id is not None:
            raise typer.BadParameter("--run-id goes with the id of a workflow")
        act("cancel_runs", target, whom, json=json, reason=reason)
        return
    call(whom, lambda app: app.get_workflow_handle(id, run_id).cancel(reason))
    show_json({"workflow_id": id}) if json else print("cancel requested")


@cli.command()
@spread
def terminate(
    id: OneOrMany = None,
    reason: Annotated[str, typer.Option()] = "",
    run_id: Run = None,
    where: Where = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Close a run at once; its code does not hear of it and cleans nothing up. With --where all open ones that pass.

    Example: perdure workflows terminate order-4711 --reason "wrong data"
    """
    target = Target(id, where, dry_run=dry_run, yes=yes)
    if id is None:
        if run_id is not None:
            raise typer.BadParameter("--run-id goes with the id of a workflow")
        act("terminate_runs", target, whom, json=json, reason=reason)
        return
    reply = call(whom, lambda app: app.get_workflow_handle(id, run_id).terminate(reason))
    show_json(reply) if json else print(reply.state)


@cli.command()
@spread
def pause(id: Id, run_id: Run = None, *, whom: Whom, json: Json = False) -> None:
    """Run no code of a run until it is resumed; what its code does just now goes on to its end.

    Example: perdure workflows pause order-4711
    """
    reply = call(whom, lambda app: app.get_workflow_handle(id, run_id).pause())
    show_json(reply) if json else print("paused")


@cli.command()
@spread
def resume(id: Id, run_id: Run = None, *, whom: Whom, json: Json = False) -> None:
    """Run the code of a paused run again.

    Example: perdure workflows resume order-4711
    """
    reply = call(whom, lambda app: app.get_workflow_handle(id, run_id).resume())
    show_json(reply) if json else print("resumed")


@cli.command()
@spread
def reset(
    id: Id,
    event_id: Annotated[int | None, typer.Option(min=1, help="The last event that the new run keeps.")] = None,
    step: Annotated[
        str | None, typer.Option(help="Or the step that runs again first: the last one of this name.")
    ] = None,
    reason: Annotated[str, typer.Option()] = "",
    run_id: Run = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Begin a run again from an event, as a new run, and print its run id. The old one is terminated if it is open.

    Example: perdure workflows reset order-4711 --event-id 4 --reason "a bug in the discount"
    """
    handle = call(
        whom,
        lambda app: app.get_workflow_handle(id, run_id).reset(event_id=event_id, step=step, reason=reason),
    )
    show_json({"workflow_id": id, "run_id": handle.run_id}) if json else print(handle.run_id)


@cli.command()
@spread
def resolve(
    id: Id,
    note: Annotated[str, typer.Option(help="What was done.")],
    run_id: Run = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Note what people have done about a closed run, such as one whose compensations failed.

    Example: perdure workflows resolve order-4711 --note "refunded by hand, ticket 17"
    """
    reply = call(whom, lambda app: app.get_workflow_handle(id, run_id).resolve(note))
    show_json(reply) if json else print("resolved")
