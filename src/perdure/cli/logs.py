"""How processes write their log."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from perdure.observe.logs import log_as_json


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="PERDURE_LOG_FORMAT", help="Of standard error: lines for people, or JSON."),
]


def choose(format: LogFormat) -> None:
    """From here on the root logger's handlers write like this."""
    if format is LogFormat.JSON:
        log_as_json()
