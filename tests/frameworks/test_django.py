"""The Django example: a real web server, real requests, a real worker, and what `on_commit` promises."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Perdure
from tests.frameworks.processes import Example, client, example, free_port


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Example]:
    with example("django_app", tmp_path) as running:
        running.run(sys.executable, "manage.py", "migrate")
        yield running


def test_an_order_is_charged_by_the_worker(application: Example, tmp_path: Path) -> None:
    """JOB-01: enqueue on commit, and the worker finds the committed row."""
    port = free_port()
    application.start(sys.executable, "manage.py", "runserver", "--noreload", str(port))
    application.start("perdure", "worker", "worker.py")
    with client(port) as web:
        placed = web.post("/orders", data={"item": "cup"})
        assert placed.status_code == 202, placed.text
        end = time.monotonic() + 30
        while not (order := web.get(placed.headers["Location"]).json())["charged"]:
            assert time.monotonic() < end, application.output()
            time.sleep(0.05)
        assert order == {"id": placed.json()["id"], "item": "cup", "charged": True}
        assert web.post("/orders").status_code == 400
        assert web.get("/orders/999").status_code == 404
    with Perdure(f"sqlite:///{tmp_path}/jobs.db") as app:
        states = [task.state for task in app.find(type="charge_order").tasks]
    assert states == ["SUCCEEDED"]  # and none for the order that was refused


def test_its_own_tests_pass(application: Example) -> None:
    """TestCase and its transaction that never commits, with jobs that see it."""
    done = application.run(sys.executable, "-W", "error", "manage.py", "test")
    assert "Ran 3 tests" in done
    assert "OK" in done


def test_models_and_migrations_agree(application: Example) -> None:
    """The migration that ships is the one that Django would make."""
    application.run(sys.executable, "manage.py", "makemigrations", "--check", "--dry-run")
