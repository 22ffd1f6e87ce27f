"""`perdure replay`: RPLY-38 and RPLY-48 from a shell: compatible, the exact place, and what scripts get."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure
from tests.worker.processes import PATIENCE, running_server, running_worker

GOLDEN = Path(__file__).parents[1] / "replay"
APP = """
from perdure import Perdure, workflow

app = Perdure("sqlite:///jobs.db")

def work(value): ...

@workflow
async def poll(ctx, cursor):
    await ctx.step("poll", work, cursor)
    await ctx.sleep(minutes=1)
    ctx.continue_as_new(cursor + 1)

@workflow
def trip(ctx):
    raise ValueError("not written yet")

@workflow
def greet(ctx, name):
    greeting = ctx.step("greet", str.upper, name)
    ctx.wait_for_signal("go", timeout="1h")
    return greeting
"""
SLEEPS_FIRST = APP.replace('    await ctx.step("poll", work, cursor)\n', "").replace(
    "minutes=1)\n", 'minutes=1)\n    await ctx.step("poll", work, cursor)\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("poll", "trip", "order"):
        shutil.copy(GOLDEN / f"{name}.json", tmp_path)
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "changed.py").write_text(SLEEPS_FIRST)
    return tmp_path


def replay(folder: Path, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "perdure", "replay", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_compatible_history(folder: Path) -> None:
    assert replay(folder, "poll.json", "app.py") == (0, "poll.json: compatible: poll w1, 12 events\n", "")
    assert not (folder / "jobs.db").exists()  # nothing is opened but the history


def test_the_exact_place_of_a_divergence(folder: Path) -> None:
    line = SLEEPS_FIRST.splitlines().index("    await ctx.sleep(minutes=1)") + 1
    status, out, errors = replay(folder, "poll.json", "changed.py")
    assert (status, errors) == (1, "")
    assert out.splitlines() == [
        "poll.json: differs at event 5: poll w1, 12 events",
        "  expected  StepStarted (name 'poll', step_id 1)",
        "  found     TimerStarted (timer_id '1')",
        f"  at        changed.py:{line}",
    ]


def test_json_for_programs(folder: Path) -> None:
    line = SLEEPS_FIRST.splitlines().index("    await ctx.sleep(minutes=1)") + 1
    status, out, _ = replay(folder, "poll.json", "changed.py", "--json")
    found = json.loads(out)
    assert status == 1 and not found["compatible"]
    [one] = found["histories"]
    assert one.pop("run_id") and one.pop("error").startswith("the code differs from the history at event 5")
    assert one == {
        "history": "poll.json", "compatible": False, "workflow": "poll", "workflow_id": "w1", "events": 12,
        "event_id": 5, "expected": "StepStarted (name 'poll', step_id 1)", "found": "TimerStarted (timer_id '1')",
        "file": "changed.py", "line": line,
    }  # fmt: skip
    assert json.loads(replay(folder, "poll.json", "app.py", "--json")[1])["compatible"] is True


def test_several_histories_and_a_run_that_ends_otherwise(folder: Path) -> None:
    status, out, _ = replay(folder, "poll.json", "trip.json", "app.py")
    assert status == 1
    first, second, *_ = out.splitlines()
    assert first == "poll.json: compatible: poll w1, 12 events"
    assert second.startswith("trip.json: differs at event ")
    assert "found     WorkflowExecutionFailed" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.json", "app.py"), "absent.json: cannot be read: No such file or directory"),
        (("app.py", "app.py"), "app.py: this is no history"),
        (("order.json", "app.py"), "order.json: no workflow is named 'order'; there are: greet, poll, trip"),
        (("poll.json", "absent.py"), "there is no file"),
        (("poll.json",), "and then the application"),
        (("app.py",), "name histories, or --workflow-id"),
    ],
)
def test_what_cannot_be_replayed(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    """Exit status 2, told apart from a divergence; the others are replayed all the same."""
    status, _, errors = replay(folder, *arguments)
    assert status == 2 and message in " ".join(errors.split()), errors
    if arguments[-1] == "app.py" and len(arguments) > 1:
        assert replay(folder, "poll.json", *arguments)[1] == "poll.json: compatible: poll w1, 12 events\n"


def test_histories_of_a_server(folder: Path) -> None:
    """RPLY-38: a run that is open, and what the CLI and REST say of it, replay with its code."""
    with (
        running_server("sqlite:///server.db", folder) as url,
        running_worker(folder / "app.py", url),
        Perdure(url) as app,
    ):
        run = app.start_workflow("greet", "ann", id="greeting")
        app.get_workflow_handle("greeting").signal("other")
        wait_for(run)
        status, out, errors = replay(folder, "app.py", "--workflow-id", "greeting", "--url", url)
        assert (status, errors) == (0, "") and out.startswith("greeting: compatible: greet greeting, ")
        assert replay(folder, "poll.json", "app.py", "--workflow-id", "greeting", "--server", url)[0] == 0
        assert replay(folder, "app.py", "--workflow-id", "unknown", "--server", url)[0] == 3
        (folder / "saved.json").write_bytes(run.history().to_json())
    assert replay(folder, "saved.json", "app.py")[0] == 0
    (folder / "app.py").write_text(APP.replace('"greet", str.upper', '"welcome", str.upper'))
    assert "found     StepStarted (name 'welcome', step_id 1)" in replay(folder, "saved.json", "app.py")[1]


def wait_for(run: Any) -> None:
    """Until its step is in the history: a query is answered by code that has come so far."""
    with pytest.raises(Exception, match="no query"):
        run.query("none")
