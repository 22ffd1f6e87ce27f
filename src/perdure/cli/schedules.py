"""`perdure schedules`: make, change, look at, pause, trigger, back-fill and delete schedules from a shell. See exits.py
for exit statuses."""

from __future__ import annotations

import sys
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
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
Note = Annotated[str, typer.Option(help="Why, for people.")]


class Starts(NamedTuple):
    """What a schedule starts."""

    task: Annotated[str | None, typer.Option(help="Name of the task that it enqueues.")] = None
    workflow: Annotated[str | None, typer.Option(help="Or of the workflow that it starts.")] = None
    payload: Annotated[str, typer.Option(help="JSON; - reads it from standard input.")] = "null"
    queue: Annotated[str, typer.Option(help="Of what it starts.")] = "default"


class When(NamedTuple):
    """Its nominal times; as ScheduleTiming, but for the jitter."""

    cron: Annotated[str | None, typer.Option(help='Five or six fields, or "@daily" and the like.')] = None
    interval: Annotated[str | None, typer.Option(help='Or a time such as "10m".')] = None
    phase: Annotated[str | None, typer.Option(help="So much later than whole multiples of the interval.")] = None
    timezone: Annotated[str, typer.Option(help="Of the clock that a cron expression goes by.")] = "UTC"
    gap: Annotated[Gap | None, typer.Option(help="Local times that a clock leaves out.")] = None
    repeated: Annotated[Repeated | None, typer.Option(help="Local times that come twice.")] = None
    start_at: Annotated[datetime | None, _moment("No firing before it.")] = None
    end_at: Annotated[datetime | None, _moment("No firing after it.")] = None


class How(NamedTuple):
    """How it fires; as ScheduleArguments."""

    jitter: Annotated[str | None, typer.Option(help='Fire up to so much later, such as "30s".')] = None
    overlap_policy: Annotated[Overlap, typer.Option("--overlap", help="While what it started still runs.")] = (
        Overlap.SKIP
    )
    misfire_policy: Annotated[Misfire, typer.Option("--misfire", help="Firings that nobody served.")] = Misfire.ONCE
    catch_up_window: Annotated[str | None, typer.Option(help="How late a firing may be.")] = None
    remaining: Annotated[int | None, typer.Option(min=1, help="Fire so many times.")] = None


@cli.command()
@spread
def create(
    id: Id,
    starts: Starts,
    when: When,
    how: How,
    paused: Annotated[bool, typer.Option("--paused", help="Fire nothing yet.")] = False,
    note: Note = "",
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Make a schedule. The same again changes nothing.

    Example: perdure schedules create nightly --task report --cron "30 2 * * *" --timezone Europe/Berlin
    """
    options = _arguments(starts, when, how)
    _show(call(whom, lambda app: app.create_schedule(id, paused=paused, note=note, **options), makes=True), json)


@cli.command()
@spread
def update(id: Id, starts: Starts, when: When, how: How, *, whom: Whom, json: Json = False) -> None:
    """Give a schedule another definition, as a whole, or make it. It stays paused if it is.

    Example: perdure schedules update nightly --task report --cron "45 2 * * *" --timezone Europe/Berlin
    """
    options = _arguments(starts, when, how)
    _show(call(whom, lambda app: app.put_schedule(id, **options), makes=True), json)


@cli.command()
@spread
def change(
    id: Id,
    changes: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="Such as cron, jitter, queue, payload; null takes one away."),
    ],
    version: Annotated[str, typer.Option(help="Only if it is still of this version, that `get` shows.")] = "",
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Change some of what a schedule is, and leave the rest. Values are JSON where they can be, else text.

    Example: perdure schedules change nightly cron="45 2 * * *" jitter=30s
    """
    given: dict[str, Any] = {}
    for part in changes:
        name, found, text = part.partition("=")
        if not found:
            raise typer.BadParameter(f"{part!r} is no NAME=VALUE")
        try:
            given[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            given[name] = text

    async def ask(app: AsyncPerdure) -> str:
        try:
            return await app.get_schedule_handle(id).update(version=version, **given)
        except TypeError as error:
            raise typer.BadParameter(str(error)) from None

    did = call(whom, ask)
    show_json({"schedule_id": id, "did": did}) if json else print(did)


def _arguments(starts: Starts, when: When, how: How) -> dict[str, Any]:
    """Of create_schedule and put_schedule."""
    if (starts.task is None) == (starts.workflow is None):
        raise typer.BadParameter("give --task or --workflow")
    payload = json_value(starts.payload, "payload")
    return {**starts._asdict(), "payload": payload, **when._asdict(), **how._asdict()}


def _show(handle: AsyncScheduleHandle, json: bool) -> None:
    show_json({"schedule_id": handle.id, "did": handle.did}) if json else print(handle.did)


@cli.command()
@spread
def preview(
    when: When,
    after: Annotated[datetime | None, _moment("From then on; now without it.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Show when a schedule would fire.

    Example: perdure schedules preview --cron "30 2 * * *" --timezone Europe/Berlin
    """
    timing: dict[str, Any] = when._asdict()
    times = call(whom, lambda app: app.preview_schedule(count, after, **timing))
    show_json(times) if json else show_times(times)


@cli.command("list")
@spread
def list_schedules(
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    cursor: Annotated[str | None, typer.Option(help="The `next` of the page before.")] = None,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """List schedules, newest first.

    Example: perdure schedules list
    """
    page = call(whom, lambda app: app.list_schedules(limit, cursor))
    if json:
        show_json({"schedules": [plain_schedule(view) for view in page.schedules], "next": page.next})
        return
    show_schedules(page.schedules)
    if page.next:
        print(f"more: --cursor {page.next}", file=sys.stderr)


@cli.command()
@spread
def get(
    id: Id,
    times: Annotated[int, typer.Option(min=0, max=1000, help="How many of its next times.")] = 5,
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Show a schedule, its next times, and what became of the last ones.

    Example: perdure schedules get nightly
    """
    view = call(whom, lambda app: app.get_schedule_handle(id).describe(times))
    show_json(plain_schedule(view)) if json else show_schedule(view)


@cli.command()
@spread
def pause(id: Id, note: Note = "", *, whom: Whom, json: Json = False) -> None:
    """Fire no more until it is resumed; what runs goes on.

    Example: perdure schedules pause nightly --note "the printer is broken"
    """
    call(whom, lambda app: app.get_schedule_handle(id).pause(note))
    show_json({"schedule_id": id}) if json else print("paused")


@cli.command()
@spread
def resume(id: Id, note: Note = "", *, whom: Whom, json: Json = False) -> None:
    """Go on with the times from now on; those that passed meanwhile are skipped.

    Example: perdure schedules resume nightly
    """
    call(whom, lambda app: app.get_schedule_handle(id).resume(note))
    show_json({"schedule_id": id}) if json else print("resumed")


@cli.command()
@spread
def trigger(id: Id, *, whom: Whom, json: Json = False) -> None:
    """Start what it starts, now, whatever runs, and print the id of that.

    Example: perdure schedules trigger nightly
    """

    async def ask(app: AsyncPerdure) -> AsyncJob | AsyncWorkflowHandle:
        return await app.get_schedule_handle(id).trigger()

    started = call(whom, ask)
    if json:
        which = "task_id" if isinstance(started, AsyncJob) else "workflow_id"
        show_json({"schedule_id": id, which: started.id})
    else:
        print(started.id)


@cli.command()
@spread
def backfill(
    id: Id,
    start_at: Annotated[datetime, _moment("From then on.")],
    end_at: Annotated[datetime, _moment("Until then.")],
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Fire for past times, at most 1,000 and 60 a second; those that fired within 24 hours are left out.

    Example: perdure schedules backfill nightly --start-at 2026-07-01 --end-at 2026-07-08
    """
    call(whom, lambda app: app.get_schedule_handle(id).backfill(start_at, end_at))
    show_json({"schedule_id": id}) if json else print("back-filling")


@cli.command()
@spread
def delete(id: Id, *, whom: Whom, json: Json = False) -> None:
    """Delete a schedule. What it has started goes on.

    Example: perdure schedules delete nightly
    """
    call(whom, lambda app: app.get_schedule_handle(id).delete())
    show_json({"schedule_id": id}) if json else print("deleted")
