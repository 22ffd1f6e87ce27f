"""`perdure schedules` on a store: one story, as people read it and as scripts do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perdure.cli.main import cli
from perdure.core.errors import Conflict, InvalidArgument, NotFound


class Shell:
    def __init__(self, store: str) -> None:
        self._store = store

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(cli, ["schedules", *words, "--server", self._store])

    def says(self, *words: str) -> str:
        done = self(*words)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout.strip()

    def json(self, *words: str) -> Any:
        return json.loads(self.says(*words, "--json"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(f"sqlite:///{tmp_path / 'jobs.db'}")


NIGHTLY = (
    "nightly",
    "--task",
    "report",
    "--cron",
    "30 2 * * *",
    "--timezone",
    "Europe/Berlin",
    "--payload",
    '{"a": 1}',
)


def test_one_story(shell: Shell) -> None:
    """CRON-11."""
    assert shell.says("create", *NIGHTLY) == "created"
    assert shell.json("create", *NIGHTLY) == {"schedule_id": "nightly", "did": "unchanged"}
    assert shell.says("update", *NIGHTLY, "--overlap", "buffer_one", "--misfire", "all", "--gap", "skip") == "updated"
    shown = shell.says("get", "nightly")
    for words in (
        "30 2 * * * (Europe/Berlin)",
        "report on queue default",
        '{"a":1}',
        "buffer_one",
        "active",
        "T02:30:00+",
    ):
        assert words in shown
    assert shell.json("get", "nightly", "--times", "2")["task"]["payload"] == {"a": 1}
    assert shell.says("list").startswith("nightly  active  ")
    assert [one["schedule_id"] for one in shell.json("list")["schedules"]] == ["nightly"]

    assert shell.says("pause", "nightly", "--note", "no paper") == "paused"
    assert shell.json("get", "nightly")["note"] == "no paper"
    assert len(shell.says("trigger", "nightly")) == 36
    assert shell.json("trigger", "nightly").keys() == {"schedule_id", "task_id"}
    assert shell.says("backfill", "nightly", "--start-at", "2026-01-01", "--end-at", "2026-01-02") == "back-filling"
    assert "firing" in shell.says("get", "nightly")
    assert shell.says("resume", "nightly") == "resumed"
    assert shell.json("pause", "nightly") == shell.json("resume", "nightly") == {"schedule_id": "nightly"}

    assert (
        shell.says("create", "flows", "--workflow", "w", "--interval", "10m", "--paused", "--note", "later")
        == "created"
    )
    assert "workflow w" in shell.says("list", "--limit", "1")
    assert shell.says("trigger", "flows").startswith("flows-2")
    assert "every 600.0 s" in shell.says("get", "flows")
    assert shell.says("delete", "flows") == "deleted"
    assert shell.json("delete", "nightly") == {"schedule_id": "nightly"}
    assert shell.says("list") == ""


def test_preview(shell: Shell) -> None:
    shell.says("create", *NIGHTLY)
    asked = ("preview", "--cron", "30 2 * * *", "--timezone", "America/New_York", "--after", "2026-03-07T12:00Z")
    assert shell.says(*asked, "--count", "2").splitlines() == [
        "2026-03-08 07:00:00  2026-03-08T03:00:00-04:00",
        "2026-03-09 06:30:00  2026-03-09T02:30:00-04:00",
    ]
    assert shell.json(*asked, "--count", "1", "--gap", "skip")[0]["local"] == "2026-03-09T02:30:00-04:00"
    repeated = ("preview", "--cron", "30 1 * * *", "--timezone", "America/New_York", "--after", "2026-11-01T00:00Z")
    assert len(shell.says(*repeated, "--repeated", "both", "--end-at", "2026-11-02T00:00Z").splitlines()) == 2


def test_what_is_wrong_is_said(shell: Shell) -> None:
    assert isinstance(shell("create", "s", "--task", "t", "--cron", "0 0 30 2 *").exception, InvalidArgument)
    shell.says("create", *NIGHTLY)
    assert isinstance(shell("create", *NIGHTLY, "--queue", "other").exception, Conflict)
    assert isinstance(shell("get", "unknown").exception, NotFound)
    assert shell("create", "s", "--cron", "@daily").exit_code == 2
    assert shell("create", "s", "--task", "t", "--cron", "@daily", "--payload", "{").exit_code == 2
