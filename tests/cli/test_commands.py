"""The `perdure` command as scripts use it: its output and its exit statuses."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from perdure import Failure, Perdure
from perdure.cli import exits
from perdure.cli.exits import status
from perdure.cli.main import cli
from perdure.cli.show import NARROW, WIDE, show_task
from perdure.cli.store import shown
from perdure.cli.tasks import State
from perdure.core import errors
from perdure.core.messages import AttemptView, TaskView
from perdure.core.model import Progress
from perdure.core.states import MOVES
from tests.worker.processes import COMMAND, perdure, running_server, running_worker

APP = """
from perdure import FatalError, Perdure, task

app = Perdure({url!r})

@task
def greet(ctx, payload):
    return "hello " + payload

@task
def fail(ctx, payload):
    raise FatalError("no")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with running_server("sqlite:///jobs.db", folder) as url:
        yield url


@pytest.fixture
def run(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command against the server, in this process; its exit status and output."""
    monkeypatch.setenv("PERDURE_SERVER", server)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str]:
        result = CliRunner().invoke(cli, arguments, input=stdin)
        if isinstance(result.exception, errors.PerdureError):
            return status(result.exception), str(result.exception)
        return result.exit_code, result.stdout.strip()

    return run


def test_from_enqueue_to_retry(run: Any, server: str, tmp_path: Path) -> None:
    app = tmp_path / "greeting.py"
    app.write_text(APP.format(url=server))
    code, id = run("tasks", "enqueue", "greet", '"you"', "--key", "k1")
    assert code == 0
    code, again = run("tasks", "enqueue", "greet", "-", "--key", "k1", "--json", stdin='"you"')
    assert json.loads(again) == {"task_id": id, "duplicate": True}
    assert run("tasks", "wait", id, "--timeout", "0") == (4, "the task is still ENQUEUED")
    code, failing = run("tasks", "enqueue", "fail", "1")
    with running_worker(app, server):
        assert run("tasks", "wait", id, "--timeout", "30s") == (0, '"hello you"')
        assert run("tasks", "wait", id, "--json") == (0, '"hello you"')
        code, text = run("tasks", "wait", failing)
        assert (code, text) == (1, "FatalError: no")
    code, shown = run("tasks", "get", failing)
    assert "fatal: FatalError: no" in shown
    code, shown = run("tasks", "get", id, "--json")
    assert (json.loads(shown)["state"], json.loads(shown)["result"]) == ("SUCCEEDED", "hello you")
    code, listed = run("tasks", "list", "--state", "FAILED", "--type", "fail", "--json")
    assert [task["task_id"] for task in json.loads(listed)["tasks"]] == [failing]
    code, listed = run("tasks", "list", "--limit", "1")
    assert failing in listed
    code, repeated = run("tasks", "retry", failing)
    assert (code, repeated != failing) == (0, True)
    assert run("tasks", "cancel", repeated, "--reason", "enough") == (0, "CANCELLED")
    assert run("tasks", "wait", repeated) == (5, "enough")
    assert run("tasks", "retry", id)[0] == 7


def test_json_leaves_nothing_out(run: Any) -> None:
    """As REST shows it: who reads it need not know what a field is when it is not there."""
    _, id = run("tasks", "enqueue", "json", "1", "--queue", "json")
    task = json.loads(run("tasks", "get", id, "--json")[1])
    assert (task["lost_deliveries"], task["closed_at"], task["fairness_key"], task["attempts"]) == (0, None, "", [])
    assert (task["timeouts"]["start_to_close"], task["timeouts"]["lease"]) == (None, 30)
    assert (task["retry"]["max_attempts"], task["retry"]["base"]) == (5, 1)
    listed = json.loads(run("tasks", "list", "--queue", "json", "--json")[1])
    assert (listed["tasks"][0]["priority"], listed["tasks"][0]["run_at"], listed["next"]) == (3, None, None)
    [queue] = [queue for queue in json.loads(run("queues", "--json")[1])["queues"] if queue["name"] == "json"]
    assert (queue["ready"], queue["running"], queue["workers"], queue["at_least"]) == (1, 0, 0, [])
    assert json.loads(run("tasks", "cancel", id, "--json")[1])["job_state"] == "CANCELLED"


def test_limits_of_a_task_that_is_known_by_name_only(run: Any) -> None:
    """B048: what cron enqueues gets its limits from the command line; `@task` is read where a function is at hand."""
    _, id = run("tasks", "enqueue", "nightly", "--max-attempts", "1", "--timeout", "10m", "--queue", "limits")
    task = json.loads(run("tasks", "get", id, "--json")[1])
    assert (task["retry"]["max_attempts"], task["max_attempts"], task["timeouts"]["start_to_close"]) == (1, 1, 600)
    shown = run("tasks", "get", id)[1]
    assert re.search(r"^timeouts +start to close 600 s, lease 30 s$", shown, re.MULTILINE), shown
    assert re.search(r"^retry +1 attempt$", shown, re.MULTILINE), shown
    _, id = run("tasks", "enqueue", "nightly", "--queue", "limits", "--delay", "1h")
    shown = run("tasks", "get", id)[1]
    assert re.search(r"^retry +5 attempts, waits up to 1 s, 2 times longer each, 3600 s at most$", shown, re.MULTILINE)
    assert re.search(r"^due +20", shown, re.MULTILINE), shown
    assert run("tasks", "enqueue", "nightly", "--max-attempts", "0")[0] == 2
    assert run("tasks", "enqueue", "nightly", "--timeout", "soon")[0] == 8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "gone: there is no such task any more; closed tasks are kept for 30 days"),
        (("--retention", "7d"), "gone: there is no such task any more; closed tasks are kept for 7 days"),
        (("--retention", "90d"), "not_found: there is no such task"),
    ],
)
def test_retention(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    """PERS-13: an id of 40 days ago is one that is not kept any more, or one that never was."""
    made = int((datetime.now(UTC) - timedelta(days=40)).timestamp() * 1000).to_bytes(6, "big")
    id = str(UUID(bytes=made + bytes.fromhex("70008000000000000001")))
    with running_server("sqlite:///kept.db", tmp_path, *options) as url:
        found = perdure("tasks", "get", id, folder=tmp_path, server=url)
    assert (found.returncode, found.stderr.splitlines()[0]) == (3, f"error {expected}")


@pytest.mark.parametrize("command", [("server", "--store", "sqlite:///x.db"), ("dev", "app.py")])
def test_retention_is_no_shorter_than_keys_live(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "app.py").write_text(APP.format(url="sqlite:///x.db"))
    refused = perdure(*command, "--retention", "1h", folder=tmp_path)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        8, "error invalid_argument: retention is out of range: 3600.0"
    )  # fmt: skip


def test_the_bound_of_histories_may_be_set(tmp_path: Path) -> None:
    """RPLY-26."""
    with running_server("sqlite:///few.db", tmp_path, "--max-history-events", "100") as url:
        perdure("workflows", "start", "flow", "--id", "w", folder=tmp_path, server=url)
        found = perdure("workflows", "get", "w", "--json", folder=tmp_path, server=url)
    assert json.loads(found.stdout)["history_warning"] == ""
    refused = perdure("server", "--store", "sqlite:///few.db", "--max-history-events", "99", folder=tmp_path)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        8, "error invalid_argument: max_history_events is 99"
    )  # fmt: skip


def test_a_pipe_gets_tasks_and_nothing_else(server: str, folder: Path, run: Any) -> None:
    ids = [run("tasks", "enqueue", "page", "--queue", "page")[1] for _ in range(2)]
    done = perdure("tasks", "list", "--queue", "page", "--limit", "1", folder=folder, server=server)
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ids[1:]
    assert done.stderr == f"more: --cursor {ids[1]}\n"


def test_a_canceled_task_says_so_beside_its_reason(server: str, folder: Path, run: Any) -> None:
    _, id = run("tasks", "enqueue", "mistake")
    run("tasks", "cancel", id, "--reason", "wrong file")
    done = perdure("tasks", "wait", id, folder=folder, server=server)
    assert (done.returncode, done.stderr) == (5, "error task_canceled: The task was canceled: wrong file\n")
    _, id = run("tasks", "enqueue", "mistake")
    run("tasks", "cancel", id)
    last = perdure("tasks", "wait", id, folder=folder, server=server).stderr
    assert last == "error task_canceled: The task was canceled\n"


def test_a_time_that_cannot_be_read_says_how_to_write_it(run: Any) -> None:
    refused = CliRunner().invoke(cli, ["tasks", "list", "--since", "yesterday"])
    assert refused.exit_code == 2
    assert "2026-07-01" in refused.output, refused.output
    assert "2026-07-01" in CliRunner().invoke(cli, ["tasks", "list", "--help"]).output


def in_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    for name, value in {"TTY_COMPATIBLE": "1", "TERM": "dumb", "LINES": "24", "COLUMNS": str(width)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_list_cuts_nothing_off(run: Any, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    in_terminal(monkeypatch, width)
    names = ["module.a_task_with_a_rather_long_name", f"orders-of-customers-in-the-north-{width}"]
    _, id = run("tasks", "enqueue", names[0], "--queue", names[1])
    _, listed = run("tasks", "list", "--queue", names[1])
    header, *rows = listed.splitlines()
    assert max(map(len, rows)) <= width
    for title, expected in zip(("id", "state", "type", "queue"), (id, "ENQUEUED", *names), strict=True):
        start = header.index(title)
        assert "".join(row[start:].partition(" ")[0] for row in rows) == expected
    assert ("created" in header) == (width == WIDE)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_list_is_lines_where_a_table_has_no_room(run: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    if terminal:
        in_terminal(monkeypatch, NARROW - 1)
    queue = f"lines-{terminal}"
    _, id = run("tasks", "enqueue", "a_task_with_a_rather_long_name", "--queue", queue)
    _, listed = run("tasks", "list", "--queue", queue)
    assert listed.split("  ")[:3] == [id, "ENQUEUED", "0/5"]
    assert listed.split("  ")[4:] == ["a_task_with_a_rather_long_name", queue]


def test_list_takes_each_state_in_any_case(run: Any) -> None:
    known = {state.name for move in MOVES.items() for state in (move[0][0], move[1])}
    known -= {"WAITING", "TERMINATED", "TIMED_OUT", "CONTINUED_AS_NEW"}  # of workflows
    assert known == {state.value for state in State}
    assert run("tasks", "list", "--state", "failed")[0] == 0
    refused = CliRunner().invoke(cli, ["tasks", "list", "--state", "odd"])
    assert refused.exit_code == 2
    assert all(name in refused.output.upper() for name in known)


def test_a_task_is_shown_with_its_attempts(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    failure = Failure(message="the scale is stuck", type="OSError")
    tried = AttemptView(1, "failed", worker="7@host", started_at=moment, finished_at=moment, failure=failure)
    view = TaskView(
        "id", "default", "default", "weigh", "default", "LEASED", "RUNNING", 3, 2, 5, moment, moment,
        progress=Progress(4, 10, "boxes"), attempts=[tried],
    )  # fmt: skip
    show_task(view)
    lines = capsys.readouterr().out.splitlines()
    assert "state             LEASED (as a job RUNNING)" in lines
    assert "attempt           2 of 5" in lines
    assert "progress          4 of 10: boxes" in lines
    local = moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    at = lines.index(f"  attempt 1       failed on 7@host, {local} to {local}")
    assert lines[at + 1].strip() == "handler_error: OSError: the scale is stuck"
    assert sum("state" in line for line in lines) == 1


def test_a_task_is_shown_whole(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    word = "x" * 200
    _, id = run("tasks", "enqueue", "t", f'"{word}"', "--queue", "shown")
    assert word in "".join(run("tasks", "get", id)[1].split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("tasks", "get", "01a22c60-3b9a-7000-9de6-012d84a3cb20"), 3),
        (("tasks", "get", "x"), 8),
        (("tasks", "enqueue", "t", "{"), 2),
        (("tasks", "enqueue", "t", "--delay", "5 minutes"), 8),
        (("tasks", "list", "--state", "ODD"), 2),
        (("tasks", "cancel", "01a22c60-3b9a-7000-9de6-012d84a3cb20"), 3),
        (("nonsense",), 2),
    ],
)
def test_exit_statuses(run: Any, arguments: tuple[str, ...], expected: int) -> None:
    assert run(*arguments)[0] == expected


def test_help_and_page_have_every_exit_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+|128 \+ n) \| (.+) \|$", page, re.M)
    assert table == re.findall(r"^ ?(\d+|128 \+ n)  (.+)$", exits.__doc__ or "", re.M)
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    assert all(re.search(rf"^ +{re.escape(number)}  {re.escape(meaning)} *$", shown, re.M) for number, meaning in table)


def test_every_error_has_a_status_of_its_kind() -> None:
    failure = errors.TaskFailed(Failure(message="m"))
    kinds = [
        errors.TaskCanceled(),
        errors.TaskExpired(),
        errors.WaitTimeout(),
        errors.OutcomeUnknown(),
        errors.Internal(),
    ]
    assert [status(error) for error in [failure, *kinds]] == [1, 5, 6, 4, 10, 11]


def test_migrate_is_safe_to_repeat(tmp_path: Path) -> None:
    first = perdure("migrate", "--store", "sqlite:///m.db", folder=tmp_path)
    assert first.stdout.startswith("applied ")
    assert perdure("migrate", "--store", "sqlite:///m.db", folder=tmp_path).stdout == "nothing to do\n"
    again = perdure("migrate", "--store", "sqlite:///m.db", "--json", folder=tmp_path)
    assert json.loads(again.stdout) == {"applied": []}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://joe:p@ss:w/ord@host:5432/jobs", "postgresql://joe@host:5432/jobs"),
        ("postgresql://host/jobs?user=joe&password=secret&x=1", "postgresql://host/jobs?user=joe&password=...&x=1"),
        ("postgresql://host:5432/jobs", "postgresql://host:5432/jobs"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_a_store_is_shown_without_its_password(url: str, text: str) -> None:
    assert shown(url) == text


def test_the_server_says_what_it_serves_and_when_it_stops(tmp_path: Path) -> None:
    command = [*COMMAND, "server", "--store", "sqlite:///s.db", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=60)
    assert line.startswith(f"perdure {version('perdure')}, store sqlite:///s.db: perdure server on http://127.0.0.1:")
    assert log.endswith("perdure server stopped\n")


def test_version(tmp_path: Path) -> None:
    assert perdure("--version", folder=tmp_path).stdout == f"perdure {version('perdure')}\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(:\n", ["line 1", "SyntaxError: "]),
        ("import json\nimport no_such_module\n", ["line 2", "import no_such_module", "ModuleNotFoundError: "]),
        ("from perdure import task\n\ntask(priority=9)\n", ["line 3", "task(priority=9)", "priority is 9"]),
    ],
)
@pytest.mark.parametrize("target", ["broken.py", "broken"])
def test_a_module_that_cannot_be_loaded_shows_its_own_line(
    tmp_path: Path, source: str, expected: list[str], target: str
) -> None:
    (tmp_path / "broken.py").write_text(source)
    done = perdure("worker", target, "--server", "http://127.0.0.1:1", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert all(text in done.stderr for text in expected)
    assert done.stderr.count('  File "') == 1
    assert "perdure/cli" not in done.stderr


def test_a_server_in_the_open_needs_keys(tmp_path: Path) -> None:
    done = perdure("server", "--store", "sqlite:///o.db", "--host", "0.0.0.0", "--port", "0", folder=tmp_path)
    assert done.returncode == 9


@pytest.mark.parametrize("target", ["missing.py", "missing_module", "two.py", "none.py:app", "none.py"])
def test_a_worker_needs_an_application(tmp_path: Path, target: str) -> None:
    (tmp_path / "two.py").write_text(
        "from perdure import Perdure\na = Perdure('http://127.0.0.1:1')\nb = Perdure('http://127.0.0.1:1')\n"
    )
    (tmp_path / "none.py").write_text("")
    assert perdure("worker", target, folder=tmp_path).returncode == 2


def test_worker_takes_the_store_of_the_application(tmp_path: Path) -> None:
    """Embedded: the worker process is a server of its own on the same file."""
    app = tmp_path / "embedded.py"
    app.write_text(APP.format(url="sqlite:///shared.db"))
    with subprocess.Popen([*COMMAND, "worker", "embedded.py"], cwd=tmp_path) as worker:
        try:
            with Perdure(f"sqlite:///{tmp_path}/shared.db") as client:
                assert client.enqueue("greet", "file").result(30) == "hello file"
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0


async def test_dev_reloads_when_a_file_changes(tmp_path: Path) -> None:
    app = tmp_path / "devapp.py"
    app.write_text(APP.format(url="sqlite:///dev.db"))
    command = [*COMMAND, "dev", "devapp.py", "--port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert "store sqlite:///dev.db" in line
        url = line.split()[3].rstrip(",")
        assert await asyncio.to_thread(greeted, url) == "hello you"
        app.write_text("a slip (")
        os.utime(app, ns=(2, 2))
        async with asyncio.timeout(60):
            while b"cannot be loaded" not in await process.stderr.readline():
                pass
        app.write_text(APP.format(url="sqlite:///dev.db").replace("hello ", "good evening "))
        os.utime(app, ns=(1, 1))
        async with asyncio.timeout(60):
            while await asyncio.to_thread(greeted, url) != "good evening you":
                await asyncio.sleep(0.1)
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


def greeted(url: str) -> Any:
    with Perdure(url) as client:
        return client.enqueue("greet", "you").result(30)
