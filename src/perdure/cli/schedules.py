"""`perdure schedules`: make, change, look at, pause, trigger, back-fill and delete schedules from a shell. See exits.py
for exit statuses."""

from __future__ import annotations

import sys
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import LOCAL, ApiKey, Json, Namespace, Server, call
from perdure.cli.show import show_json
from perdure.cli.show_schedule import plain_schedule, show_schedule, show_schedules, show_times
from perdure.cli.values import json_value, time_value
from perdure.sdk.handle import AsyncJob
from perdure.sdk.run_handle import AsyncWorkflowHandle
from perdure.sdk.schedules import AsyncScheduleHandle

cli = typer.Typer(help="Make, change, look at, pause, trigger and delete schedules.", no_args_is_help=True)


class Gap(StrEnum):
    """What a local time does that is left out as clocks go forward."""

    AFTER = "after"
    SKIP = "skip"


class Repeated(StrEnum):
    """Which ones count of a local time that comes twice as clocks go back."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Overlap(StrEnum):
    """While something that the schedule started still runs."""

    SKIP = "skip"
    ALLOW = "allow"
    BUFFER_ONE = "buffer_one"
    CANCEL_PREVIOUS = "cancel_previous"


class Misfire(StrEnum):
    """Of firings that nobody served."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


def _moment(help: str) -> Any:
    return typer.Option(parser=time_value, metavar="TIME", help=help)


Id = Annotated[str, typer.Argument(help="Id of the schedule.")]
Task = Annotated[str | None, typer.Option(help="Name of the task that it enqueues.")]
Workflow = Annotated[str | None, typer.Option(help="Or of the workflow that it starts.")]
Payload = Annotated[str, typer.Option(help="JSON; - reads it from standard input.")]
Cron = Annotated[str | None, typer.Option(help='Five or six fields, or "@daily" and the like.')]
Interval = Annotated[str | None, typer.Option(help='Or a time such as "10m".')]
Phase = Annotated[str | None, typer.Option(help="So much later than whole multiples of the interval.")]
Zone = Annotated[str, typer.Option("--timezone", help="Of the clock that a cron expression goes by.")]
WhenGap = Annotated[Gap | None, typer.Option("--gap", help="Local times that a clock leaves out.")]
WhenRepeated = Annotated[Repeated | None, typer.Option("--repeated", help="Local times that come twice.")]
Start = Annotated[datetime | None, _moment("No firing before it.")]
End = Annotated[datetime | None, _moment("No firing after it.")]
Jitter = Annotated[str | None, typer.Option(help='Fire up to so much later, such as "30s".')]
WhenBusy = Annotated[Overlap, typer.Option("--overlap", help="While what it started still runs.")]
WhenMissed = Annotated[Misfire, typer.Option("--misfire", help="Firings that nobody served.")]
Window = Annotated[str | None, typer.Option("--catch-up-window", help="How late a firing may be.")]
Remaining = Annotated[int | None, typer.Option(min=1, help="Fire so many times.")]
Queue = Annotated[str, typer.Option(help="Of what it starts.")]
Note = Annotated[str, typer.Option(help="Why, for people.")]


@cli.command()
def create(
    id: Id,
    task: Task = None,
    workflow: Workflow = None,
    payload: Payload = "null",
    cron: Cron = None,
    interval: Interval = None,
    phase: Phase = None,
    timezone: Zone = "UTC",
    gap: WhenGap = None,
    repeated: WhenRepeated = None,
    start_at: Start = None,
    end_at: End = None,
    jitter: Jitter = None,
    overlap: WhenBusy = Overlap.SKIP,
    misfire: WhenMissed = Misfire.ONCE,
    catch_up_window: Window = None,
    remaining: Remaining = None,
    queue: Queue = "default",
    paused: Annotated[bool, typer.Option("--paused", help="Fire nothing yet.")] = False,
    note: Note = "",
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Make a schedule. The same again changes nothing.

    Example: perdure schedules create nightly --task report --cron "30 2 * * *" --timezone Europe/Berlin
    """
    _need_one(task, workflow)
    value = json_value(payload, "payload")
    timing = _timing(cron, interval, phase, timezone, gap, repeated, start_at, end_at, jitter)
    policies = _policies(overlap, misfire, catch_up_window, remaining)

    async def ask(app: AsyncPerdure) -> AsyncScheduleHandle:
        return await app.create_schedule(
            id, task=task, workflow=workflow, payload=value, queue=queue, paused=paused, note=note, **timing, **policies
        )

    handle = call(server, api_key, namespace, ask, makes=True)
    show_json({"schedule_id": handle.id, "did": handle.did}) if json else print(handle.did)


@cli.command()
def update(
    id: Id,
    task: Task = None,
    workflow: Workflow = None,
    payload: Payload = "null",
    cron: Cron = None,
    interval: Interval = None,
    phase: Phase = None,
    timezone: Zone = "UTC",
    gap: WhenGap = None,
    repeated: WhenRepeated = None,
    start_at: Start = None,
    end_at: End = None,
    jitter: Jitter = None,
    overlap: WhenBusy = Overlap.SKIP,
    misfire: WhenMissed = Misfire.ONCE,
    catch_up_window: Window = None,
    remaining: Remaining = None,
    queue: Queue = "default",
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Give a schedule another definition, as a whole, or make it. It stays paused if it is.

    Example: perdure schedules update nightly --task report --cron "45 2 * * *" --timezone Europe/Berlin
    """
    _need_one(task, workflow)
    value = json_value(payload, "payload")
    timing = _timing(cron, interval, phase, timezone, gap, repeated, start_at, end_at, jitter)
    policies = _policies(overlap, misfire, catch_up_window, remaining)

    async def ask(app: AsyncPerdure) -> AsyncScheduleHandle:
        return await app.put_schedule(
            id, task=task, workflow=workflow, payload=value, queue=queue, **timing, **policies
        )

    handle = call(server, api_key, namespace, ask, makes=True)
    show_json({"schedule_id": handle.id, "did": handle.did}) if json else print(handle.did)


@cli.command()
def preview(
    cron: Cron = None,
    interval: Interval = None,
    phase: Phase = None,
    timezone: Zone = "UTC",
    gap: WhenGap = None,
    repeated: WhenRepeated = None,
    start_at: Start = None,
    end_at: End = None,
    after: Annotated[datetime | None, _moment("From then on; now without it.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Show when a schedule would fire.

    Example: perdure schedules preview --cron "30 2 * * *" --timezone Europe/Berlin
    """
    timing = _timing(cron, interval, phase, timezone, gap, repeated, start_at, end_at, None)
    times = call(server, api_key, namespace, lambda app: app.preview_schedule(count, after, **timing))
    show_json(times) if json else show_times(times)


@cli.command("list")
def list_schedules(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="The `next` of the page before.")] = None,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """List schedules, newest first.

    Example: perdure schedules list
    """
    page = call(server, api_key, namespace, lambda app: app.list_schedules(limit, cursor))
    if json:
        show_json({"schedules": [plain_schedule(view) for view in page.schedules], "next": page.next})
        return
    show_schedules(page.schedules)
    if page.next:
        print(f"more: --cursor {page.next}", file=sys.stderr)


@cli.command()
def get(
    id: Id,
    times: Annotated[int, typer.Option(min=0, max=1000, help="How many of its next times.")] = 5,
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Show a schedule, its next times, and what became of the last ones.

    Example: perdure schedules get nightly
    """
    view = call(server, api_key, namespace, lambda app: app.get_schedule_handle(id).describe(times))
    show_json(plain_schedule(view)) if json else show_schedule(view)


@cli.command()
def pause(
    id: Id, note: Note = "", server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Fire no more until it is resumed; what runs goes on.

    Example: perdure schedules pause nightly --note "the printer is broken"
    """
    call(server, api_key, namespace, lambda app: app.get_schedule_handle(id).pause(note))
    show_json({"schedule_id": id}) if json else print("paused")


@cli.command()
def resume(
    id: Id, note: Note = "", server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Go on with the times from now on; those that passed meanwhile are skipped.

    Example: perdure schedules resume nightly
    """
    call(server, api_key, namespace, lambda app: app.get_schedule_handle(id).resume(note))
    show_json({"schedule_id": id}) if json else print("resumed")


@cli.command()
def trigger(
    id: Id, server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False
) -> None:
    """Start what it starts, now, whatever runs, and print the id of that.

    Example: perdure schedules trigger nightly
    """

    async def ask(app: AsyncPerdure) -> AsyncJob | AsyncWorkflowHandle:
        return await app.get_schedule_handle(id).trigger()

    started = call(server, api_key, namespace, ask)
    if json:
        which = "task_id" if isinstance(started, AsyncJob) else "workflow_id"
        show_json({"schedule_id": id, which: started.id})
    else:
        print(started.id)


@cli.command()
def backfill(
    id: Id,
    start_at: Annotated[datetime, _moment("From then on.")],
    end_at: Annotated[datetime, _moment("Until then.")],
    server: Server = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Fire for past times, at most 1,000 and 60 a second; those that fired within 24 hours are left out.

    Example: perdure schedules backfill nightly --start-at 2026-07-01 --end-at 2026-07-08
    """
    call(server, api_key, namespace, lambda app: app.get_schedule_handle(id).backfill(start_at, end_at))
    show_json({"schedule_id": id}) if json else print("back-filling")


@cli.command()
def delete(
    id: Id, server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False
) -> None:
    """Delete a schedule. What it has started goes on.

    Example: perdure schedules delete nightly
    """
    call(server, api_key, namespace, lambda app: app.get_schedule_handle(id).delete())
    show_json({"schedule_id": id}) if json else print("deleted")


def _need_one(task: str | None, workflow: str | None) -> None:
    if (task is None) == (workflow is None):
        raise typer.BadParameter("give --task or --workflow")


def _timing(
    cron: str | None,
    interval: str | None,
    phase: str | None,
    timezone: str,
    gap: Gap | None,
    repeated: Repeated | None,
    start_at: datetime | None,
    end_at: datetime | None,
    jitter: str | None,
) -> dict[str, Any]:
    """As ScheduleTiming."""
    return {
        "cron": cron,
        "interval": interval,
        "phase": phase,
        "timezone": timezone,
        "gap": None if gap is None else gap.value,
        "repeated": None if repeated is None else repeated.value,
        "start_at": start_at,
        "end_at": end_at,
        "jitter": jitter,
    }


def _policies(overlap: Overlap, misfire: Misfire, catch_up_window: str | None, remaining: int | None) -> dict[str, Any]:
    return {
        "overlap_policy": overlap.value,
        "misfire_policy": misfire.value,
        "catch_up_window": catch_up_window,
        "remaining": remaining,
    }
