"""`perdure failures`, `perdure doctor`, and `perdure tasks` with --where: RETRY-07, OPS-03."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perdure import FatalError, Perdure, TaskFailed, task
from perdure.cli.main import cli


@task(name="cli_dead")
def dead(ctx: Any, number: int) -> None:
    raise FatalError(f"no {number}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('failures')}/jobs.db"
    with Perdure(url) as app:
        jobs = app.enqueue_many(dead, range(3))
        with app.worker():
            for job in jobs:
                with pytest.raises(TaskFailed):
                    job.result(60)
        app.enqueue("cli_waits", queue="cli_nobody", delay="1h")
    return url


def run(store: str, *words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, [*words, "--server", store], input=stdin)


def test_groups_are_listed_and_shown(store: str) -> None:
    listed = run(store, "failures", "list", "--json")
    [group] = json.loads(listed.stdout)["groups"]
    assert (group["count"], group["message"], group["at_least"]) == (3, "no <n>", False)
    assert "cli_dead" in run(store, "failures", "list", "--type", "cli_dead").stdout
    assert run(store, "failures", "list", "--type", "other").stdout == ""
    shown = run(store, "failures", "show", group["group"])
    assert shown.stdout.count("FAILED") >= 3
    assert "FatalError" in shown.stdout
    last = json.loads(run(store, "failures", "show", group["group"], "--json").stdout)["last"]
    assert last["failure_group"] == group["group"]
    missing = run(store, "failures", "show", "0" * 16)
    assert "there is no job in this group" in str(missing.exception)


def test_many_are_counted_before_anything_is_done(store: str) -> None:
    counted = run(store, "tasks", "retry", "--where", "type=cli_dead", "--dry-run")
    assert counted.stdout == "3 jobs would be retried\n"
    found = json.loads(run(store, "tasks", "delete", "--where", "state=failed", "--dry-run", "--json").stdout)
    assert (found["total"], found["at_least"], found["id"]) == (3, False, "")
    refused = run(store, "tasks", "retry", "--where", "type=cli_dead")
    assert refused.exit_code == 2
    assert "--yes" in refused.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tasks", "retry"), "either an id, or --where"),
        (("tasks", "cancel", "x", "--where", "type=a"), "either an id, or --where"),
        (("tasks", "cancel", "x", "--yes"), "go with"),
        (("tasks", "retry", "--where", "type"), "no NAME=VALUE"),
        (("tasks", "retry", "--where", "kind=1"), "no NAME=VALUE"),
        (("tasks", "retry", "--where", "type=a", "--where", "type=b"), "given twice"),
        (("tasks", "retry", "--where", "since=soon"), "no time"),
        (("tasks", "retry", "--where", "type=a", "--payload", "1"), "goes with one task"),
    ],
)
def test_a_command_line_that_says_nothing_clear_is_refused(store: str, words: tuple[str, ...], said: str) -> None:
    done = run(store, *words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_many_are_canceled_retried_and_deleted(store: str) -> None:
    canceled = run(store, "tasks", "cancel", "--where", "queue=cli_nobody", "--yes", "--reason", "moved")
    assert canceled.stdout.endswith("1 canceled, 0 left as they are\n")
    done = json.loads(run(store, "tasks", "delete", "--where", "state=CANCELED", "-y", "--json").stdout)
    assert (done["state"], done["done"], done["failed"]) == ("SUCCEEDED", 1, 0)
    assert run(store, "tasks", "retry", "--where", "error=FatalError", "--yes").stdout.endswith(
        "3 retried, 0 left as they are\n"
    )
    assert run(store, "failures", "list").stdout == ""


def test_what_is_found_is_said_with_what_to_do(store: str, tmp_path: Path) -> None:
    with Perdure(store) as app:
        app.enqueue("cli_waits", queue="cli_nobody")
    found = run(store, "doctor")
    assert found.exit_code == 1
    assert "cli_nobody" in found.stdout
    assert "what to do: Start a worker" in found.stdout
    reply = json.loads(run(store, "doctor", "--json").stdout)
    assert "no_worker" in [one["check"] for one in reply["findings"]]
    nothing = f"sqlite:///{tmp_path}/new.db"
    with Perdure(nothing) as app:
        assert app.doctor().findings == []
    fine = run(nothing, "doctor")
    assert (fine.exit_code, fine.stdout) == (0, "16 checks, 0 findings\n")
