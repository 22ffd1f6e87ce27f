"""The `perdure` command as scripts use it: its output and its exit statuses."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure import Failure, Perdure
from perdure.cli.exits import status
from perdure.cli.main import cli
from perdure.core import errors
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
    assert "more: --cursor" in listed
    code, repeated = run("tasks", "retry", failing)
    assert (code, repeated != failing) == (0, True)
    assert run("tasks", "cancel", repeated, "--reason", "enough") == (0, "CANCELLED")
    assert run("tasks", "wait", repeated) == (5, "enough")
    assert run("tasks", "retry", id)[0] == 7


@pytest.mark.parametrize("width", [80, 120])
def test_a_list_cuts_nothing_off(run: Any, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["module.a_task_with_a_rather_long_name", f"orders-of-customers-in-the-north-{width}"]
    _, id = run("tasks", "enqueue", names[0], "--queue", names[1])
    _, listed = run("tasks", "list", "--queue", names[1])
    header, *rows = listed.splitlines()
    assert max(map(len, rows)) <= width
    for title, expected in zip(("id", "state", "type", "queue"), (id, "ENQUEUED", *names), strict=True):
        start = header.index(title)
        assert "".join(row[start:].partition(" ")[0] for row in rows) == expected
    assert ("created" in header) == (width == 120)


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
        (("tasks", "list", "--state", "ODD"), 8),
        (("tasks", "cancel", "01a22c60-3b9a-7000-9de6-012d84a3cb20"), 3),
        (("nonsense",), 2),
    ],
)
def test_exit_statuses(run: Any, arguments: tuple[str, ...], expected: int) -> None:
    assert run(*arguments)[0] == expected


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


def test_errors_go_to_stderr_without_a_trace(server: str, folder: Path) -> None:
    done = perdure("tasks", "get", "x", folder=folder, server=server)
    assert (done.returncode, done.stdout) == (8, "")
    assert done.stderr.startswith("error invalid_argument: task_id is not a task id")


def test_keys_lock_a_server(tmp_path: Path) -> None:
    store = "sqlite:///locked.db"
    key = perdure("keys", "create", "--store", store, "--namespace", "shop", folder=tmp_path).stdout.strip()
    assert key.startswith("pdk_")
    listed = perdure("keys", "list", "--store", store, folder=tmp_path).stdout
    assert "shop" in listed
    assert key not in listed
    with running_server(store, tmp_path) as url:
        assert perdure("tasks", "list", folder=tmp_path, server=url).returncode == 9
        allowed = perdure("tasks", "list", "--api-key", key, "--namespace", "shop", folder=tmp_path, server=url)
        assert allowed.returncode == 0, allowed.stderr


def test_migrate_is_safe_to_repeat(tmp_path: Path) -> None:
    first = perdure("migrate", "--store", "sqlite:///m.db", folder=tmp_path)
    assert first.stdout.startswith("applied ")
    assert perdure("migrate", "--store", "sqlite:///m.db", folder=tmp_path).stdout == "nothing to do\n"


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
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert "store sqlite:///dev.db" in line
        url = line.split()[3].rstrip(",")
        assert await asyncio.to_thread(greeted, url) == "hello you"
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


def test_every_command_shows_an_example() -> None:
    groups = {"": cli, **{group.name or "": group.typer_instance for group in cli.registered_groups}}
    commands = [command for group in groups.values() if group for command in group.registered_commands]
    assert len(commands) == 12
    missing = [command.name for command in commands if "Example: perdure" not in (command.callback.__doc__ or "")]
    assert not missing
