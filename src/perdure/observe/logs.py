"""Log records as JSON, one object a line, with the ids of what they are about.

A record that is made while a REST request is answered has its `request_id`: the header X-Request-Id of the request, or
a new one; the answer has it in the same header. Records of handlers have `task_id`, `task_type` and `attempt`
(sdk/logs.py). Whatever else a record was given by `extra=` is a field too.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

REQUEST_ID: ContextVar[str] = ContextVar("perdure_request_id", default="")
"""Of the request that is answered here, if any."""
HEADER = b"x-request-id"
_READABLE = re.compile(rb"[!-~]{1,128}")
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "task", "taskName"}
"""What every record has, and `task`, which says in words what fields say."""


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """That of a request: its own, if that is 1 to 128 printable ASCII characters without spaces, else a random one."""
    given = next((value for name, value in headers if name == HEADER), b"")
    return given.decode("ascii") if _READABLE.fullmatch(given) else secrets.token_hex(8)


class RequestLogFilter(logging.Filter):
    """Gives every record that is made while a request is answered its `request_id`. Lets all records pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if found := REQUEST_ID.get():
            record.request_id = found
        return True


class JsonFormatter(logging.Formatter):
    """time (RFC 3339, UTC), level, logger and message; fields of the record that are not empty; `exception`, the
    traceback, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD and value}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=repr)  # which, unlike msgspec, writes half a surrogate pair


requests = logging.getLogger("perdure.requests")
"""A record for each REST request, for machines: off unless records are JSON."""
requests.setLevel(logging.WARNING)


def answered(method: str, path: str, status: int, seconds: float, location: str) -> None:
    """A request was answered. `location` is where what it made is to be looked at."""
    if requests.isEnabledFor(logging.INFO):
        about = {"method": method, "path": path, "status": status, "seconds": round(seconds, 6), "location": location}
        requests.info("%s %s: %d", method, path, status, extra=about)


def log_as_json() -> None:
    """Let the handlers of the root logger write JSON."""
    requests.setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
        handler.addFilter(RequestLogFilter())
