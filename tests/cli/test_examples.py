"""Every command's help shows an example, and every example works: each is run as it stands, but for the ids and
addresses of the machine it is run on."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from perdure import Breaker, Perdure
from perdure.cli.main import cli
from perdure.database import api_keys
from tests.worker.processes import COMMAND, PATIENCE, running_server

APP = """
from perdure import FatalError, Perdure, task, workflow

app = Perdure("sqlite:///jobs.db")

@task
def resize_image(ctx, payload):
    return payload

@task
def fail(ctx, payload):
    raise FatalError("no")

@workflow
async def poll(ctx, cursor):
    await ctx.step("poll", print, cursor)
    await ctx.sleep(minutes=1)
    ctx.continue_as_new(cursor + 1)
"""
HISTORY = Path(__file__).parents[1] / "replay" / "poll.json"
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def commands(app: typer.Typer = cli, prefix: str = "perdure") -> Iterator[tuple[str, Callable[..., object]]]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"{prefix} {command.name or command.callback.__name__}", command.callback
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{prefix} {group.name}")


COMMANDS = dict(commands())
RUN_ON = ("perdure server", "perdure worker", "perdure dev")
"""Commands that go on until a signal."""
EVENTS = ("perdure events", "perdure webhooks", "perdure tasks stream")
WORKFLOWS = tuple(name for name in COMMANDS if name.startswith("perdure workflows"))
TOLD = WORKFLOWS + tuple(name for name in COMMANDS if name.startswith(EVENTS))
"""They tell one story each; test_workflow_commands.py and tests/outbox/test_commands.py run them."""
NOUNS: dict[str, list[str]] = {}
"""The others, by what they are about."""
for name in COMMANDS:
    if name not in RUN_ON + TOLD:
        NOUNS.setdefault(name.split()[1], []).append(name)


def example(command: str) -> str:
    [found] = re.findall(r"^ *Example: (perdure .+)$", COMMANDS[command].__doc__ or "", re.M)
    assert found.startswith(command)
    return str(found)


def test_every_command_is_known() -> None:
    assert len(COMMANDS) == 71


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "app.py").write_text(APP)
    shutil.copy(HISTORY, folder / "history.json")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with running_server("sqlite:///jobs.db", folder) as url:
        yield url


@pytest.fixture(scope="module")
def tasks(folder: Path, server: str) -> dict[str, str]:
    """A task for each example that names one."""
    with Perdure(server) as client:
        failed, stays, done = client.enqueue("fail"), client.enqueue("fail"), client.enqueue("resize_image", 1)
        worker = subprocess.Popen([*COMMAND, "worker", "app.py", "--server", server], cwd=folder)
        done.result(PATIENCE)
        for job in (failed, stays):
            with pytest.raises(Exception, match="no"):
                job.result(PATIENCE)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
        client.set_limit("type", "charge", breaker=Breaker(crashes=5))
        client.add_search_attribute("customer_tier", "Keyword")
        waiting = client.enqueue("resize_image", delay="1h")
        group = str(client.get(failed.id).failure_group)
    return {"get": done.id, "wait": done.id, "cancel": waiting.id, "retry": failed.id, "show": group}


@pytest.mark.parametrize("noun", NOUNS)
async def test_examples_work(
    noun: str, folder: Path, server: str, tasks: dict[str, str], postgres_database: str
) -> None:
    """Those of one noun in the order of its help, because some need what others make."""
    for command in NOUNS[noun]:
        await _works(command, folder, server, tasks, postgres_database)


async def _works(command: str, folder: Path, server: str, tasks: dict[str, str], postgres_database: str) -> None:
    line = ID.sub(lambda _: tasks[command.split()[-1]], example(command))
    line = re.sub(r"postgresql://\S+", postgres_database, line)
    if command.startswith("perdure keys"):
        line = line.replace("sqlite:///jobs.db", "sqlite:///keys.db")  # the server of the others goes on without keys
    if command == "perdure keys revoke":
        subprocess.run([*COMMAND, "keys", "create", "--store", "sqlite:///keys.db"], cwd=folder, check=True)
        start = (await api_keys(f"sqlite:///{folder}/keys.db"))[0].hash.hex()[:16]
        line = re.sub(r"\b[0-9a-f]{16}\b", start, line)
    if command == "perdure failures show":
        line = re.sub(r"\b[0-9a-f]{16}\b", tasks["show"], line)
    done = run(line, folder, server)
    fine = (0, 1) if command == "perdure doctor" else (0,)  # 1: it finds that jobs wait and no worker is there
    assert done.returncode in fine, (line, done.stderr)
    assert done.stdout.strip() or command in ("perdure limits list", "perdure tasks list"), line


def run(line: str, folder: Path, server: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *shlex.split(line)[1:]], cwd=folder, env={**os.environ, "PERDURE_SERVER": server},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("command", RUN_ON)
def test_examples_that_go_on_work_until_a_signal(command: str, folder: Path, server: str) -> None:
    words = shlex.split(example(command).replace("http://127.0.0.1:7400", server))[1:]
    if command != "perdure worker":
        words += ["--port", "0"]
    with subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            if command == "perdure worker":
                with Perdure(server) as client:
                    job = client.enqueue("resize_image", 7)
                    assert job.result(PATIENCE) == 7
            else:
                assert process.stdout is not None
                assert "perdure server on http://127.0.0.1:" in process.stdout.readline()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
