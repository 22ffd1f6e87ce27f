"""Events when servers are killed: OBS-01, OBS-28, OBS-31, FAIL-38."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread

import pytest

from perdure import AsyncPerdure
from perdure.core.event_messages import Event
from perdure.sdk.handle import AsyncJob
from tests.worker.processes import COMMAND, PATIENCE, perdure, running_worker

APP = """
from perdure import FatalError, Perdure, task

app = Perdure({url!r})

@task(retries=0)
def count(ctx, number):
    ctx.stream.write(number)
    if number % 7 == 0:
        raise FatalError("a multiple of seven")
"""
JOBS = 400


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server(store: str, folder: Path, port: int) -> Iterator[Popen[str]]:
    """A server that the test may kill."""
    command = [*COMMAND, "server", "--store", store, "--port", str(port), "--webhooks-to-private"]
    with Popen(command, cwd=folder, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert "perdure server on" in process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[str]]]:
    """A URL, and the ids of the events that it took; it refuses every tenth try."""
    taken: list[str] = []
    tries = 0

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal tries
            event = json.loads(self.rfile.read(int(self.headers["content-length"])))
            tries += 1
            refused = tries % 10 == 0 and tries < 25
            if not refused:
                taken.append(event["id"])
            self.send_response(503 if refused else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/", taken
    served.shutdown()
    served.server_close()


@pytest.mark.timeout(300)
async def test_a_killed_server_loses_no_event_and_doubles_none(
    url: str, tmp_path: Path, endpoint: tuple[str, list[str]]
) -> None:
    """400 jobs, a reader that keeps its cursor, a webhook; the server is killed three times while they run. The feed
    has one event for each job, the reader got each once, and the endpoint all, in order but for repeats."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    (tmp_path / "app.py").write_text(APP.format(url=address))
    hook, taken = endpoint
    perdure("migrate", "--store", url, folder=tmp_path)
    seen: list[tuple[str, str, str]] = []
    async with AsyncPerdure(address) as app:
        jobs: list[AsyncJob] = []

        async def follow() -> None:
            async for event in app.events("oldest"):
                seen.append((event.id, event.type, event.subject))
                if len(seen) >= JOBS:
                    return

        with server(url, tmp_path, port):
            await app.record_events()
            await app.add_webhook(hook, cursor="oldest")
            jobs = await app.enqueue_many("count", range(JOBS))
        with running_worker(tmp_path / "app.py", address, "--slots", "4"):
            following: asyncio.Task[None] | None = None
            for kills in (1, 2, 3):
                with server(url, tmp_path, port):
                    following = following or asyncio.create_task(follow())
                    async with asyncio.timeout(PATIENCE):
                        while len(seen) < kills * JOBS // 5:
                            await asyncio.sleep(0.01)
            with server(url, tmp_path, port):
                assert following is not None
                async with asyncio.timeout(PATIENCE):
                    await following
                    page = [event async for event in _first(app, JOBS)]
                    while set(taken) != {event.id for event in page}:
                        await asyncio.sleep(0.05)
    assert seen == [(event.id, event.type, event.subject) for event in page]
    assert Counter(event.subject for event in page) == Counter(job.id for job in jobs)
    failed = {jobs[number].id for number in range(0, JOBS, 7)}
    assert {event.subject for event in page if event.type == "task.failed"} == failed
    order = {event.id: number for number, event in enumerate(page)}
    firsts = list(dict.fromkeys(taken))
    assert [order[id] for id in firsts] == sorted(order[id] for id in firsts)


async def _first(app: AsyncPerdure, number: int) -> AsyncIterator[Event]:
    async for event in app.events("oldest"):
        yield event
        number -= 1
        if not number:
            return
