"""`perdure events`, `perdure webhooks` and `perdure tasks stream`, against a real server."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from perdure import Perdure
from tests.worker.processes import COMMAND, PATIENCE, perdure, running_server, running_worker

APP = """
from perdure import Perdure, task

app = Perdure("sqlite:///jobs.db")

@task
def tell(ctx, words):
    for word in words:
        ctx.stream.write(word)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "app.py").write_text(APP)
    with running_server("sqlite:///jobs.db", tmp_path, "--webhooks-to-private") as url:
        yield url


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """A URL, and what was sent there."""
    taken: Queue[dict[str, Any]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/", taken
    served.shutdown()
    served.server_close()


def test_events_and_streams(tmp_path: Path, server: str) -> None:
    """API-20: recorded, followed, filtered, ended."""

    def ask(*arguments: str) -> str:
        done = perdure(*arguments, folder=tmp_path, server=server)
        assert done.returncode == 0, done.stderr
        return done.stdout

    refused = perdure("events", "tail", folder=tmp_path, server=server)
    assert refused.returncode == 7
    assert "perdure events on" in refused.stderr
    assert ask("events", "on") == "recording\n"
    with running_worker(tmp_path / "app.py", server), Perdure(server) as client:
        job = client.enqueue("tell", ["once ", "upon ", {"a": "time"}])
        job.result(PATIENCE)
        assert ask("tasks", "stream", job.id) == 'once upon {"a":"time"}\n'
        assert json.loads(ask("tasks", "stream", job.id, "--offset", "2", "--json"))["value"] == {"a": "time"}
        line = ask("events", "tail", "--from", "oldest", "--limit", "1").split("  ")
        assert line[2:5] == ["task.succeeded", job.id, "tell"]
        following = subprocess.Popen(
            [*COMMAND, "events", "tail", "--json", "--type", "task.canceled", "--from", "oldest"],
            cwd=tmp_path, env={"PERDURE_SERVER": server}, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
        )  # fmt: skip
        with following:
            later = client.enqueue("tell", [], delay="1h")
            client.cancel(later.id)
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["subject"] == later.id
            following.send_signal(signal.SIGINT)
    assert json.loads(ask("events", "off", "--json"))["recording"] is False


def test_webhooks(tmp_path: Path, server: str, endpoint: tuple[str, Queue[dict[str, Any]]]) -> None:
    """API-20, OBS-31: from its making to its end."""
    url, taken = endpoint

    def ask(*arguments: str) -> Any:
        done = perdure("webhooks", *arguments, "--json", folder=tmp_path, server=server)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    made = ask("add", url, "--type", "task.*")
    hook = made["id"]
    assert made["secret"].startswith("whsec_")
    assert ask("ping", hook)["ok"]
    assert taken.get(timeout=PATIENCE)["type"] == "ping"
    with Perdure(server) as client:
        job = client.enqueue("tell", [], delay="1h")
        client.cancel(job.id)
    assert taken.get(timeout=PATIENCE)["subject"] == job.id
    assert ask("disable", hook, "--note", "moving")["note"] == "moving"
    shown = perdure("webhooks", "list", folder=tmp_path, server=server).stdout
    assert shown == f"{hook}  disabled (moving)  {url}  task.*\n"
    assert ask("replay", hook, "--from", "oldest")["disabled_at"] is None
    assert taken.get(timeout=PATIENCE)["subject"] == job.id
    assert ask("deadletters", hook) == {"letters": []}
    ask("delete", hook)
    assert ask("list") == {"webhooks": []}


def test_a_server_sends_nothing_inside_unless_it_is_told_to(tmp_path: Path) -> None:
    """SEC-20."""
    with running_server("sqlite:///other.db", tmp_path) as url:
        refused = perdure("webhooks", "add", "http://127.0.0.1:9/", folder=tmp_path, server=url)
        assert refused.returncode == 8
        assert "--webhooks-to-private" in refused.stderr
