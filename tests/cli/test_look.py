"""`perdure queues` and `perdure workers`, against a server and against a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perdure.cli.look import _row
from perdure.cli.main import cli
from perdure.core.messages import QueueView
from tests.worker.processes import perdure, running_server, running_worker

APP = """
from perdure import Perdure, task

app = Perdure({url!r})

@task
def greet(ctx, payload):
    return "hello " + payload
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("look")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with running_server("sqlite:///jobs.db", folder) as url:
        yield url


def test_nothing_is_shown_as_nothing(tmp_path: Path) -> None:
    with running_server("sqlite:///empty.db", tmp_path) as url:
        for command, name in (("queues", "queues"), ("workers", "workers")):
            assert perdure(command, folder=tmp_path, server=url).stdout == ""
            assert json.loads(perdure(command, "--json", folder=tmp_path, server=url).stdout) == {name: []}


def test_queues_and_workers(folder: Path, server: str) -> None:
    """B157, B163: what waits where, and who is there to work on it."""
    app = folder / "greeting.py"
    app.write_text(APP.format(url=server))
    for arguments in (("greet", '"you"', "--queue", "slow"), ("greet", '"later"', "--delay", "1h")):
        assert perdure("tasks", "enqueue", *arguments, folder=folder, server=server).returncode == 0
    with running_worker(app, server, "--queue", "default", "--slots", "3"):
        shown: list[dict[str, object]] = []
        while not shown:
            shown = json.loads(perdure("workers", "--json", folder=folder, server=server).stdout)["workers"]
        assert (shown[0]["queues"], shown[0]["slots"]) == (["default"], 3)
        line = perdure("workers", folder=folder, server=server).stdout.split("  ")
        assert (line[0], line[1], line[2]) == (shown[0]["identity"], "connected", "3")
        found = json.loads(perdure("queues", "--json", folder=folder, server=server).stdout)["queues"]
        assert [(q["name"], q.get("ready", 0), q.get("delayed", 0), q.get("workers", 0)) for q in found] == [
            ("default", 0, 1, 1), ("slow", 1, 0, 0),
        ]  # fmt: skip
    lines = perdure("queues", folder=folder, server=f"sqlite:///{folder}/jobs.db").stdout.splitlines()
    assert [line.split("  ")[:5] for line in lines] == [["default", "0", "0", "1", "0"], ["slow", "1", "0", "0", "0"]]


def test_a_table_on_a_terminal(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": "100", "PERDURE_SERVER": server}.items():
        monkeypatch.setenv(name, value)
    header, *_ = CliRunner().invoke(cli, ["queues"]).stdout.splitlines()
    assert header.split() == ["queue", "ready", "running", "delayed", "retrying", "oldest", "workers", "owner"]


def test_counts_that_stopped_say_so() -> None:
    queue = QueueView("q", ready=10_000, running=7, oldest_ready_seconds=61.4, workers=2, at_least=["ready"])
    assert _row(queue) == ("q", "10000+", "7", "0", "0", "61s", "2", "-")
    assert _row(QueueView("q"))[5] == "-"
