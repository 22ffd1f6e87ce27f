"""Tasks as people read them. Nothing is cut off, because it would be what somebody copies or looks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Column, Table

from perdure.core.errors import InvalidArgument
from perdure.core.messages import AttemptView, TaskView
from perdure.core.model import Failure, Payloads, Progress, RetryPolicy, Timeouts
from perdure.sdk.converter import from_payloads

WIDE = 120
"""Columns of a terminal that has room for all columns of a list."""
NARROW = 72
"""Below it there is no room for a table: id and state take 48."""
LABEL = 18  #: columns of a name before its value


def show_json(value: Any) -> None:
    print(msgspec.json.encode(whole(value)).decode())


def whole(value: Any) -> Any:
    """With every field: on the wire those that are as usual are left out, and a script must not have to know them."""
    match value:
        case msgspec.Struct():
            return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [whole(item) for item in value]
        case dict():
            return {name: whole(item) for name, item in value.items()}
        case _:
            return value


def plain(view: TaskView) -> dict[str, Any]:
    """A task as JSON, with payload and result as values where they are JSON themselves."""
    return {**whole(view), "payload": value_of(view.payload), "result": value_of(view.result)}


def show_list(views: Sequence[TaskView]) -> None:
    """A table where it has room, in which long names wrap; else, and for pipes, a line a task."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal or console.width < NARROW:
        for view in views:
            print(view.task_id, view.state, _tries(view), time(view.created_at), view.type, view.queue, sep="  ")
        return
    wide = console.width >= WIDE
    table = Table(Column("id", no_wrap=True), Column("state", no_wrap=True), box=None, pad_edge=False)
    if wide:
        table.add_column("attempt", no_wrap=True)
        table.add_column("created", no_wrap=True)
    table.add_column("type", overflow="fold")
    table.add_column("queue", overflow="fold")
    for view in views:
        more = (_tries(view), time(view.created_at)) if wide else ()
        table.add_row(view.task_id, view.state, *more, view.type, view.queue)
    console.print(table)


def show_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under their titles, in which long values wrap; for pipes, and where there is no room, a line a row."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal or console.width < NARROW:
        for row in rows:
            print(*row, sep="  ")
        return
    table = Table(*(Column(title, overflow="fold") for title in titles), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def show_task(view: TaskView) -> None:
    """A line a field; those that say nothing are left out."""
    for name, value in _fields(view):
        first, *rest = value.splitlines() or [""]
        print(f"{name:<{LABEL}}{first}")
        for line in rest:
            print(" " * LABEL + line)


def _fields(view: TaskView) -> Iterator[tuple[str, str]]:
    for name, value in plain(view).items():
        match name:
            case "state":
                yield name, view.state + (f" (as a job {view.job_state})" if view.job_state != view.state else "")
            case "attempt":
                yield name, f"{view.attempt} of {view.max_attempts}"
            case "run_at" if view.run_at is not None:
                yield "due", time(view.run_at)
            case "timeouts":
                yield name, _timeouts(view.timeouts)
            case "retry":
                yield name, _retry(view.retry)
            case "progress" if view.progress is not None:
                yield name, _progress(view.progress)
            case "failure" if view.failure is not None:
                yield name, f"{failure_text(view.failure)}\n{view.failure.stack}"
            case "attempts":
                for attempt in view.attempts:
                    yield f"  attempt {attempt.attempt}", _attempt(attempt)
            case "payload" | "result" if value is not None:
                yield name, msgspec.json.encode(value).decode()
            case "job_state" | "max_attempts":
                pass  # said beside state and attempt
            case _ if isinstance(moment := getattr(view, name), datetime):
                yield name.removesuffix("_at"), time(moment)
            case _ if value not in ("", 0, None):
                yield name, str(value)


def _timeouts(timeouts: Timeouts) -> str:
    given = ((name.replace("_", " "), getattr(timeouts, name)) for name in timeouts.__struct_fields__)
    return ", ".join(f"{name} {seconds:g} s" for name, seconds in given if seconds is not None)


def _retry(retry: RetryPolicy) -> str:
    attempts = f"{retry.max_attempts} attempt{'s' if retry.max_attempts > 1 else ''}"
    if retry.max_attempts == 1:
        return attempts
    if retry.delays:
        waits = f"waits {', '.join(f'{delay:g}' for delay in retry.delays)} s"
    else:
        waits = f"waits up to {retry.base:g} s, {retry.factor:g} times longer each, {retry.cap:g} s at most"
    fatal = f", none after {', '.join(retry.fatal_types)}" if retry.fatal_types else ""
    return f"{attempts}, {waits}{fatal}"


def _attempt(attempt: AttemptView) -> str:
    worker = f" on {attempt.worker}" if attempt.worker else ""
    times = [time(moment) for moment in (attempt.started_at, attempt.finished_at) if moment is not None]
    why = "" if attempt.failure is None else f"\n{failure_text(attempt.failure)}"
    return f"{attempt.outcome}{worker}, {' to '.join(times)}{why}"


def failure_text(failure: Failure) -> str:
    """In one line."""
    return ": ".join(part for part in (failure.code, failure.type, failure.message) if part)


def _progress(progress: Progress) -> str:
    total = "" if progress.total is None else f" of {progress.total:g}"
    return f"{progress.done:g}{total}{': ' if progress.message else ''}{progress.message}"


def _tries(view: TaskView) -> str:
    return f"{view.attempt}/{view.max_attempts}"


def moment(micros: int) -> datetime:
    """Of microseconds since 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def time(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def value_of(payloads: Payloads | None) -> Any:
    """The value; as it is stored, in base64, when only the application's data converter can read it."""
    if payloads is None:
        return None
    try:
        return msgspec.to_builtins(from_payloads(payloads, "payload"))
    except InvalidArgument:
        return [msgspec.to_builtins({**payload.metadata, "data": payload.data}) for payload in payloads]
