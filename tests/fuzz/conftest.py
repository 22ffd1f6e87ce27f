"""No request, whatever it says, may leave a trace of a bug in the server's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name in ("perdure.worker", "perdure.workflow"):
            return  # they tell how handlers and compensations fail
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"{record.getMessage()} [{error!r}]")


@pytest.fixture(autouse=True)
def nothing_is_logged_as_an_error() -> Iterator[None]:
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    yield
    logging.getLogger().removeHandler(errors)
    assert not errors.lines
