"""Values on a command line."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer


def json_value(text: str, what: str) -> Any:
    """What JSON text stands for; "-" reads it from standard input."""
    try:
        return msgspec.json.decode(sys.stdin.buffer.read() if text == "-" else text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise typer.BadParameter(f"the {what} is not JSON: {error}") from None


def time_value(text: str) -> datetime:
    """Of this machine's time zone, unless it names another one."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time such as 2026-07-01 or 2026-07-01T08:30") from None


Since = Annotated[
    datetime | None,
    typer.Option(parser=time_value, metavar="TIME", help="Created then or later: 2026-07-01, or 2026-07-01T08:30."),
]
