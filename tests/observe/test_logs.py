"""Log records as JSON, and the ids of requests and tasks in them (7.4)."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure.api.server import Server
from perdure.observe import logs
from perdure.observe.logs import HEADER, REQUEST_ID, JsonFormatter, RequestLogFilter, log_as_json, request_id
from tests.observe.pages import read
from tests.worker.processes import COMMAND

log = logging.getLogger("tests.observe")


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What the root logger writes as JSON, as far as it has been read."""
    found: list[dict[str, Any]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(self.format(record)))

    root, handler = logging.getLogger(), Keep()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    log_as_json()
    yield found
    root.handlers[:] = before
    root.setLevel(level)
    logs.requests.setLevel(logging.WARNING)


def test_a_record_is_one_object_with_what_it_was_given(lines: list[dict[str, Any]]) -> None:
    try:
        raise ValueError("no\nway")
    except ValueError:
        log.warning("it %s", "failed", exc_info=True, extra={"task_id": "t1", "odd": {1}, "empty": ""})
    [line] = lines
    assert line["time"].endswith("+00:00")
    assert line["exception"].endswith("ValueError: no\nway")
    shown = {name: line[name] for name in ("level", "logger", "message", "task_id", "odd")}
    assert shown == {
        "level": "warning", "logger": "tests.observe", "message": "it failed", "task_id": "t1", "odd": "{1}",
    }  # fmt: skip
    assert "empty" not in line


def test_whatever_is_logged_can_be_written() -> None:
    record = logging.makeLogRecord({"msg": "\ud800", "odd": object(), "name": "x", "levelname": "INFO"})
    assert json.loads(JsonFormatter().format(record))["odd"].startswith("<object object")


def test_requests_bring_their_ids_or_get_one() -> None:
    assert request_id([(b"host", b"a"), (HEADER, b"abc-1")]) == "abc-1"
    for bad in (b"", b"a b", b"x" * 129, b"\xff", b"a\nb"):
        assert len(request_id([(HEADER, bad)])) == 16
    assert request_id([]) != request_id([])


def test_records_name_the_request_that_they_are_made_for() -> None:
    record = logging.makeLogRecord({})
    assert RequestLogFilter().filter(record)
    assert not hasattr(record, "request_id")
    token = REQUEST_ID.set("r1")
    RequestLogFilter().filter(record)
    REQUEST_ID.reset(token)
    assert record.__dict__["request_id"] == "r1"


async def test_a_request_is_told_with_its_id_and_what_it_made(server: Server, lines: list[dict[str, Any]]) -> None:
    async with aiohttp.ClientSession() as session:
        body, given = {"task_type": "t"}, {"X-Request-Id": "mine"}
        async with session.post(f"{server.url}/v1/tasks", json=body, headers=given) as response:
            assert response.headers["X-Request-Id"] == "mine"
            location = response.headers["Location"]
        async with session.get(f"{server.url}/v1/tasks/nothing") as response:
            assert len(response.headers["X-Request-Id"]) == 16
    made, missed = (line for line in lines if line["logger"] == "perdure.requests")
    assert (made["method"], made["path"], made["status"], made["request_id"]) == ("POST", "/v1/tasks", 202, "mine")
    assert (made["location"], made["seconds"] > 0) == (location, True)
    assert (missed["status"], len(missed["request_id"])) == (422, 16) or missed["status"] in (400, 404)


async def test_without_json_requests_are_not_told(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await read(server.url)
    assert not [record for record in caplog.records if record.name == "perdure.requests"]


def test_a_server_writes_json(tmp_path: Path) -> None:
    command = [*COMMAND, "server", "--store", "sqlite:///jobs.db", "--port", "0", "--log-format", "json"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "perdure server on" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    told = [json.loads(line) for line in errors.splitlines()]
    assert told[-1]["message"] == "perdure server stopped"
