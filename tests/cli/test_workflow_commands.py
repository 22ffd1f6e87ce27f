"""`perdure workflows` against a real server and a real worker: the examples of the help as one story, JSON for scripts,
and exit statuses."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure.cli.exits import status
from perdure.cli.main import cli
from perdure.cli.workflows import Conflict, Reuse, Status
from perdure.core import errors
from perdure.core.model import Failure
from perdure.sdk.history import WorkflowHistory
from tests.cli.test_examples import WORKFLOWS, example
from tests.worker.processes import PATIENCE, running_server, running_worker

APP = """
from perdure import Perdure
from perdure.sdk.workflow import workflow

app = Perdure({url!r})

@workflow(name="fulfil")
class Fulfil:
    def __init__(self):
        self.city = "Bonn"
    async def run(self, ctx, order):
        approved = await ctx.wait_for_signal("approve", timeout="1h")
        if approved == "never":
            raise ValueError("not approved")
        return {{"order": order["order"], "city": self.city, "approved": approved}}
    @workflow.query
    def status(self):
        return "waiting for approval"
    @workflow.update
    async def change_address(self, address):
        self.city = address["city"]
        return self.city
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("workflows")
    with running_server("sqlite:///jobs.db", folder) as url:
        (folder / "app.py").write_text(APP.format(url=url))
        with running_worker(folder / "app.py", url):
            yield url


@pytest.fixture
def run(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command against the server, in this process; its exit status and output."""
    monkeypatch.setenv("PERDURE_SERVER", server)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["workflows", *arguments], input=stdin)
        if isinstance(result.exception, errors.PerdureError):
            return status(result.exception), str(result.exception)
        return result.exit_code, result.stdout.strip()

    return run


def test_the_examples_tell_a_story(run: Any) -> None:
    """Each as its help shows it."""

    def play(name: str) -> str:
        words = shlex.split(example(f"perdure workflows {name}"))[2:]
        code, text = run(*words)
        assert code == 0, (words, text)
        return str(text)

    assert play("start") == "order-4711"
    assert "order-4711" in play("list")
    assert play("count") == "1"
    assert "waiting_for       " in play("get")
    assert "WorkflowExecutionStarted" in play("history")
    assert play("query") == '"waiting for approval"'
    assert play("update") == '"Ulm"'
    assert play("signal") == "signaled"
    assert json.loads(play("result")) == {"order": 4711, "city": "Ulm", "approved": {"by": "bob"}}
    assert play("start") == "order-4711"
    run("update", "order-4711", "change_address", '{"city": "x"}')
    assert play("pause") == "paused"
    assert "it is paused" in play("get")
    assert "order-4711  " in run("list", "--type", "fulfil", "--lacks-version", "discount")[1]
    assert play("resume") == "resumed"
    made = play("reset")
    assert f"run_id            {made}" in play("get")
    for name, ended in (("cancel", "cancel requested"), ("terminate", "TERMINATED")):
        run("start", "fulfil", "{}", "--id", "order-4711", "--id-conflict", "terminate_existing")
        run("update", "order-4711", "change_address", '{"city": "x"}')  # so that its code has begun
        assert play(name) == ended
        assert run("result", "order-4711")[0] == 5
    assert play("resolve") == "resolved"
    assert "resolution        refunded by hand, ticket 17 (" in play("get")
    assert {name.split()[-1] for name in WORKFLOWS} == {
        "start", "list", "get", "history", "query", "update", "signal", "result", "cancel", "terminate", "pause",
        "resume", "reset", "resolve", "count",
    }  # fmt: skip


def test_scripts_get_json(run: Any) -> None:
    """SDK-04: every field; and a history that a replayer reads."""
    code, made = run("start", "fulfil", "-", "--id", "scripted", "--json", stdin='{"order": 1}')
    started = json.loads(made)
    assert (code, started["workflow_id"], started["started"]) == (0, "scripted", True)
    again = json.loads(run("start", "fulfil", "{}", "--id", "scripted", "--id-conflict", "use_existing", "--json")[1])
    assert again == {**started, "started": False}
    view = json.loads(run("get", "scripted", "--json")[1])
    assert (view["run_id"], view["status"], view["cron"], view["memo"]) == (started["run_id"], "RUNNING", "", {})
    page = json.loads(run("list", "--status", "running", "--id", "scripted", "--json")[1])
    assert [one["run_id"] for one in page["workflows"]] == [started["run_id"]] and page["next"] is None
    assert json.loads(run("signal", "scripted", "approve", "1", "--json")[1]) == {"workflow_id": "scripted"}
    assert json.loads(run("result", "scripted", "--timeout", "30s", "--json")[1])["order"] == 1
    history = WorkflowHistory.from_json(run("history", "scripted", "--run-id", started["run_id"], "--json")[1])
    assert (history.run_id, len(history.events)) == (started["run_id"], history.events[-1].id)
    lines = run("history", "scripted")[1].splitlines()
    assert len(lines) == len(history.events)
    backward = run("history", "scripted", "--reverse")[1].splitlines()
    assert [line.strip() for line in backward] == [line.strip() for line in lines[::-1]]
    assert "WorkflowExecutionSignaled signal_name=approve input=[1]" in " ".join(lines)
    ended = json.loads(run("get", "scripted", "--json")[1])
    assert (ended["status"], ended["result"]["approved"]) == ("COMPLETED", 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("get", "unknown"), 3),
        (("result", "unknown"), 3),
        (("get", "scripted", "--run-id", "x"), 8),
        (("start", "fulfil", "{"), 2),
        (("start", ""), 8),
        (("start", "fulfil", "--delay", "soon"), 8),
        (("start", "fulfil", "--id-conflict", "odd"), 2),
        (("list", "--status", "ODD"), 2),
        (("signal", "unknown", "go"), 3),
        (("query", "unknown", "status"), 3),
        (("terminate", "unknown"), 3),
    ],
)
def test_exit_statuses(run: Any, arguments: tuple[str, ...], expected: int) -> None:
    assert run(*arguments)[0] == expected


def test_exit_statuses_of_what_happens_to_a_run(run: Any) -> None:
    assert run("start", "fulfil", '{"order": 2}', "--id", "fails")[0] == 0
    assert run("start", "fulfil", "--id", "fails") == (7, "a run of workflow 'fails' is open")
    assert run("result", "fails", "--timeout", "0")[0] == 4
    assert run("query", "fails", "odd")[0] == 1
    run("signal", "fails", "approve", '"never"')
    assert run("result", "fails") == (1, "ValueError: not approved")
    assert "ValueError: not approved" in run("get", "fails")[1]
    assert run("signal", "fails", "approve")[0] == 7
    assert run("start", "fulfil", "--id", "fails", "--id-reuse", "reject_duplicate")[0] == 7
    assert run("start", "elsewhere", "--id", "alone", "--queue", "nobody")[0] == 0
    assert run("query", "alone", "status", "--timeout", "0.1s")[0] == 10
    assert "none is registered for queue 'nobody'" in run("get", "alone")[1]


def test_an_update_that_starts_its_run(run: Any) -> None:
    update = ("update", "fresh", "change_address", '{"city": "Ulm"}', "--start", "fulfil", "--update-id", "u")
    assert run(*update, "--start-input", '{"order": 9}') == (0, '"Ulm"')
    assert run(*update) == (0, '"Ulm"'), "the same update"
    assert run("signal", "fresh", "approve", "1")[0] == 0
    assert json.loads(run("result", "fresh", "--timeout", "30s")[1])["order"] == 9
    assert run(*update, "--run-id", "x")[0] == 2
    assert run("update", "nobody", "change_address")[0] == 3
    assert "fresh" not in run("list", "--open")[1]
    assert "fresh" in run("list", "--id", "fresh")[1]


def test_choices_are_those_of_the_server() -> None:
    from perdure.api.run_drafts import ID_CONFLICT
    from perdure.api.turn_checks import ID_REUSE
    from perdure.api.workflow_views import RUNNING, STATUSES

    assert [choice.value for choice in Conflict] == list(ID_CONFLICT)
    assert [choice.value for choice in Reuse] == list(ID_REUSE)
    assert {choice.value for choice in Status} == {RUNNING, *STATUSES.values()}


def test_errors_of_runs_have_statuses_of_their_kind() -> None:
    failure = Failure(message="m")
    kinds = [
        errors.UpdateFailed(failure), errors.QueryFailed(failure), errors.TaskTerminated(), errors.NoWorker(),
        errors.WorkflowClosed(), errors.WorkflowAlreadyStarted(),
    ]  # fmt: skip
    assert [status(error) for error in kinds] == [1, 1, 5, 10, 7, 7]


def test_advice_stands_below_the_error(server: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "workflows", "get", "unknown", "--server", server],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("error not_found: there is no workflow 'unknown'\n  what to do: Look for it with ")


def test_a_run_is_shown_in_words(run: Any, server: str, tmp_path: Path) -> None:
    """A line a field, those that say nothing left out."""
    run("start", "fulfil", '{"order": 3}', "--id", "shown")
    run("update", "shown", "change_address", '{"city": "x"}')
    lines = run("get", "shown")[1].splitlines()
    fields = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in lines if not line.startswith(" ")}
    assert fields["status"] == "RUNNING" and fields["type"] == "fulfil" and fields["workflow_id"] == "shown"
    assert "cron" not in fields and "failure" not in fields and "stuck" not in fields
    assert any(line.startswith("  timer") and "fires at" in line for line in lines)
