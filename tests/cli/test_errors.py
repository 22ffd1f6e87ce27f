"""What goes wrong at 3 a.m. is said on standard error in two lines: what and why, and what to do. No trace, no
password, and nothing on standard output; a command that only looks makes no file."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Failure
from perdure.cli.advice import advice
from perdure.core import errors
from perdure.core.ids import Mint, text
from tests.worker.processes import perdure, running_server

UNREACHABLE = "postgresql://joe:secret@127.0.0.1:1/jobs"
STORE = "postgresql://joe@127.0.0.1:1/jobs: "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("errors")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with running_server("sqlite:///jobs.db", folder) as url:
        yield url


def said(arguments: tuple[str, ...], folder: Path, server: str = "") -> tuple[int, str, str]:
    """Exit status, what went wrong, and what to do about it."""
    done = perdure(*arguments, folder=folder, server=server)
    assert done.stdout == ""
    what, _, what_to_do = done.stderr.rstrip().partition("\n  what to do: ")
    assert "\n" not in what + what_to_do, done.stderr
    assert "secret" not in done.stderr
    return done.returncode, what, what_to_do


@pytest.mark.parametrize(
    ("arguments", "status", "what", "what_to_do"),
    [
        (("migrate", "--store", UNREACHABLE), 10, STORE, "See that the database runs"),
        (("keys", "create", "--store", UNREACHABLE), 10, STORE, "See that the database runs"),
        (("server", "--store", UNREACHABLE, "--port", "0"), 10, STORE, "See that the database runs"),
        (("migrate", "--store", "sqlite:///none/jobs.db"), 10, "sqlite:///none/jobs.db: ", "path in the URL"),
        (("migrate", "--store", "jobs.db"), 8, "'jobs.db' is no URL of a store; write sqlite:///jobs.db or ", ""),
        (
            ("migrate", "--store", "postgresql://joe:secret/1@h/jobs"),
            8,
            "'postgresql://joe@h/jobs' has no host and port",
            "",
        ),
        (("keys", "list", "--store", "postgresql://joe:secret[@h/jobs"), 8, "write : / ? # [ ] @ as %XX", ""),
        (
            ("tasks", "list", "--server", "jobs.db"),
            8,
            "'jobs.db' is no URL of a store; write sqlite:///jobs.db or ",
            "",
        ),
        (
            ("keys", "list", "--store", "sqlite:///typo.db"),
            3,
            "sqlite:///typo.db: there is no such file",
            "is relative",
        ),
        (
            ("tasks", "list", "--server", "sqlite:///typo.db"),
            3,
            "sqlite:///typo.db: there is no such file",
            "is relative",
        ),
        (
            ("tasks", "get", "x", "--server", "http://127.0.0.1:1"),
            10,
            "is `perdure server` running at http://127.0.0.1:1? Connect call failed",
            "Start one with `perdure server --store URL`",
        ),
        (
            ("queues", "--server", "http://nobody.invalid"),
            10,
            "is `perdure server` running at http://nobody.invalid?",
            "",
        ),
        (
            ("tasks", "list", "--server", "http://"),
            8,
            "'http://' is no URL of a server; write http://127.0.0.1:7400",
            "",
        ),
        (("tasks", "list", "--server", "http://h:port"), 8, "'http://h:port' is no URL of a server", ""),
    ],
)
def test_what_cannot_be_reached(
    tmp_path: Path, arguments: tuple[str, ...], status: int, what: str, what_to_do: str
) -> None:
    code, found, advised = said(arguments, tmp_path)
    assert (code, found.startswith("error ")) == (status, True)
    assert what in found
    assert what_to_do in advised
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_task(folder: Path, server: str) -> None:
    new = text(Mint().task_id(4_000_000_000_000_000))
    for command in ("get", "wait", "cancel", "retry"):
        code, what, what_to_do = said(("tasks", command, new), folder, server)
        assert (code, what) == (3, "error not_found: there is no such task")
        assert "`perdure tasks list`" in what_to_do
    code, what, what_to_do = said(("tasks", "get", "x"), folder, server)
    assert (code, what) == (8, "error invalid_argument: task_id is not a task id: 'x'")
    assert what_to_do == "Allowed: a UUID."
    code, what, _ = said(("tasks", "get", "01000000-0000-7000-8000-000000000000"), folder, server)
    assert (code, what) == (3, "error gone: there is no such task any more; closed tasks are kept for 30 days")


def test_a_value_that_is_refused(folder: Path, server: str) -> None:
    """With the field and what it may be."""
    code, what, what_to_do = said(("tasks", "enqueue", "t", "--queue", "x" * 300), folder, server)
    assert (code, what) == (8, "error invalid_argument: queue has 300 characters")
    assert what_to_do == "Allowed: 1 to 255 bytes of printable text."
    assert perdure("tasks", "enqueue", "t", "1", "--key", "k", folder=folder, server=server).returncode == 0
    code, what, what_to_do = said(("tasks", "enqueue", "t", "2", "--key", "k"), folder, server)
    assert (code, what.startswith("error idempotency_conflict")) == (7, True)
    assert "--key" in what_to_do


def test_keys_that_are_missing_wrong_or_of_another_namespace(tmp_path: Path) -> None:
    store = "sqlite:///locked.db"
    key = perdure("keys", "create", "--store", store, "--namespace", "shop", folder=tmp_path).stdout.strip()
    with running_server(store, tmp_path) as url:
        code, what, what_to_do = said(("tasks", "list"), tmp_path, url)
        assert (code, what.startswith("error unauthenticated: ")) == (9, True)
        assert "--api-key or PERDURE_API_KEY" in what_to_do
        code, what, _ = said(("tasks", "list", "--api-key", "pdk_secret"), tmp_path, url)
        assert (code, what) == (9, "error unauthenticated: the API key is not known, or was revoked")
        code, what, what_to_do = said(("tasks", "list", "--api-key", key, "--namespace", "other"), tmp_path, url)
        assert (code, what) == (9, "error permission_denied: the API key is not of namespace 'other'")
        assert what_to_do.startswith("Leave --namespace out")
        allowed = perdure("tasks", "list", "--api-key", key, "--namespace", "shop", folder=tmp_path, server=url)
        assert allowed.returncode == 0, allowed.stderr


def test_a_schema_that_is_missing(tmp_path: Path, postgres_database: str) -> None:
    for command in ("server", "keys create"):
        code, what, what_to_do = said((*command.split(), "--store", postgres_database), tmp_path)
        assert code == 7
        assert "the database lacks 0001_initial" in what
        assert what_to_do.startswith("Run `perdure migrate --store URL`")
    assert perdure("migrate", "--store", postgres_database, folder=tmp_path).returncode == 0
    assert perdure("keys", "list", "--store", postgres_database, folder=tmp_path).returncode == 0


def test_a_port_in_use_and_a_host_in_the_open(tmp_path: Path, server: str) -> None:
    port = server.rpartition(":")[2]
    code, what, what_to_do = said(("server", "--store", "sqlite:///p.db", "--port", port), tmp_path)
    assert (code, what) == (7, f"error conflict: cannot listen on 127.0.0.1 port {port}: Address already in use")
    assert "--port" in what_to_do
    code, what, what_to_do = said(("server", "--store", "sqlite:///p.db", "--host", "0.0.0.0", "--port", "0"), tmp_path)
    assert (code, "make an API key first" in what) == (9, True)
    assert "`perdure keys create`" in what_to_do


class _Pages(http.server.BaseHTTPRequestHandler):
    """Some other web server, which has a page for everything."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>welcome</html>")

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


def test_another_web_server_at_the_url(tmp_path: Path) -> None:
    pages = http.server.HTTPServer(("127.0.0.1", 0), _Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{pages.server_port}"
    code, what, what_to_do = said(("tasks", "list", "--server", url), tmp_path)
    pages.shutdown()
    pages.server_close()
    assert (code, what) == (10, f"error unavailable: what answers at {url} is no Perdure server")
    assert "--server URL" in what_to_do


def test_something_that_accepts_and_says_nothing(tmp_path: Path) -> None:
    """B031: a black hole is told apart within seconds."""
    with socket.create_server(("127.0.0.1", 0)) as hole:
        url = f"http://127.0.0.1:{hole.getsockname()[1]}"
        code, what, _ = said(("tasks", "list", "--server", url), tmp_path)
    assert (code, what) == (10, f"error unavailable: is `perdure server` running at {url}? no answer")


def kinds(root: type[errors.PerdureError]) -> Iterator[type[errors.PerdureError]]:
    yield root
    for child in root.__subclasses__():
        yield from kinds(child)


SAY_IT_ALL = {
    errors.PerdureError,
    errors.Conflict,
    errors.LeaseLost,
    errors.TaskCanceled,
    errors.TaskExpired,
    errors.InvalidArgument,
    errors.UnhandledMessages,
}
"""Kinds whose own words have all there is to say, or which never reach a command as such."""


@pytest.mark.parametrize("kind", [kind for kind in kinds(errors.PerdureError) if kind.__module__ == errors.__name__])
def test_every_kind_of_error_has_advice(kind: type[errors.PerdureError]) -> None:
    error = kind(Failure(message="m")) if issubclass(kind, errors.TaskFailed) else kind("m")  # type: ignore[arg-type]
    error.field = "task_id" if kind is errors.NotFound else None
    assert bool(advice(error)) == (kind not in SAY_IT_ALL)


@pytest.mark.parametrize(
    "payload", [b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'{"a": NaN}', b"[" * 5_000 + b"]" * 5_000]
)
@pytest.mark.parametrize("given", ["as argument", "on standard input"])
def test_b130_b132_a_payload_that_is_no_json(folder: Path, payload: bytes, given: str) -> None:
    """Bytes that are no text, halves of characters, NaN, endless nesting: usage, and no trace."""
    store = f"sqlite:///{folder / 'none.db'}"
    command = [sys.executable, "-m", "perdure", "tasks", "enqueue", "t", "--server", store]
    argument, stdin = (payload, b"") if given == "as argument" else (b"-", payload)
    done = subprocess.run([*command, argument], input=stdin, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is not JSON" in done.stderr
    assert b"Traceback" not in done.stderr
