"""The FastAPI example: a real web server, real requests, a real worker on the same SQLite file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.frameworks.processes import Example, client, example, free_port


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Example]:
    with example("fastapi_app", tmp_path) as running:
        yield running


@pytest.fixture
def web(application: Example) -> Iterator[httpx.Client]:
    port = free_port()
    application.start("uvicorn", "web:web", "--port", str(port))
    with client(port) as connected:
        yield connected


def closed(web: httpx.Client, location: str) -> dict[str, Any]:
    """The report once it has ended, asked for as a client does: again after the time that the server names."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        answer = web.get(location)
        assert answer.status_code == 200, answer.text
        if "Retry-After" not in answer.headers:
            report: dict[str, Any] = answer.json()
            return report
        time.sleep(0.05)
    raise AssertionError(answer.text)


def test_a_report_is_accepted_at_once_and_written_by_the_worker(application: Example, web: httpx.Client) -> None:
    """JOB-01, JOB-06: 202 and Location while nobody works, the result once somebody does."""
    answer = web.post("/reports", json={"name": "Birds", "pages": 3})
    assert answer.status_code == 202, answer.text
    location = answer.headers["Location"]
    waiting = web.get(location)
    assert waiting.json() == {"id": answer.json()["id"], "state": "QUEUED"}
    assert waiting.headers["Retry-After"] == "1"
    application.start("perdure", "worker", "jobs.py")
    report = closed(web, location)
    assert report["state"] == "SUCCEEDED", application.output()
    assert report["report"] == {"text": "Birds, 3 pages"}
    assert report["progress"] == {"done": 3, "total": 3}


def test_failures_bad_input_and_repeats(application: Example, web: httpx.Client) -> None:
    """JOB-05, JOB-11."""
    application.start("perdure", "worker", "jobs.py")
    failed = closed(web, web.post("/reports", json={"name": "All", "pages": 101}).headers["Location"])
    assert failed["state"] == "FAILED"
    assert failed["error"]["message"] == "nobody reads more than 100 pages"
    assert web.post("/reports", json={"name": "x", "pages": 0}).status_code == 422
    assert web.get("/reports/nonsense").status_code == 404
    assert web.get("/reports/01a22d08-b8eb-7001-8ba3-9e1e9a03c42e").status_code == 404
    key = {"Idempotency-Key": "one"}
    first = web.post("/reports", json={"name": "One", "pages": 1}, headers=key)
    again = web.post("/reports", json={"name": "One", "pages": 1}, headers=key)
    assert first.json() == again.json()
    assert web.post("/reports", json={"name": "Two", "pages": 1}, headers=key).status_code == 409


TEST = """
from fastapi.testclient import TestClient
from jobs import app, write_report
from perdure.testing import jumping
from web import web

def test_report():
    with jumping(app) as env, TestClient(web) as client:
        location = client.post("/reports", json={"name": "Birds", "pages": 2}).headers["Location"]
        assert [job.payload for job in env.enqueued(write_report)] == [{"name": "Birds", "pages": 2}]
        assert client.get(location).json()["state"] == "QUEUED"
        env.run()
        assert client.get(location).json()["report"] == {"text": "Birds, 2 pages"}

def test_the_application_may_be_started_again():
    with jumping(app) as env:
        for _ in range(2):
            with TestClient(web) as client:
                assert client.post("/reports", json={"name": "Birds", "pages": 2}).status_code == 202
        assert len(env.enqueued()) == 2
"""


def test_its_tests_need_no_process_and_no_file(tmp_path: Path, application: Example) -> None:
    """SDK-14: an application with its own event loop in another thread is redirected too."""
    (tmp_path / "test_web.py").write_text(TEST)
    done = application.run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", str(tmp_path)
    )
    assert "2 passed" in done
    assert not (tmp_path / "jobs.db").exists()


def test_the_worker_can_be_killed(application: Example, web: httpx.Client) -> None:
    """TASK-01: what was accepted is done by another worker."""
    worker = application.start("perdure", "worker", "jobs.py")
    location = web.post("/reports", json={"name": "Birds", "pages": 100}).headers["Location"]
    while web.get(location).json()["state"] == "QUEUED":
        time.sleep(0.02)
    for process in psutil.Process(worker.pid).children():
        process.kill()  # its supervisor reports that, and starts another
    assert closed(web, location)["state"] == "SUCCEEDED", application.output()
