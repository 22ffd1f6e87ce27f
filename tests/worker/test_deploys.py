"""Workers that are replaced while they work: by a deploy, because they are worn, or because a file has changed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from perdure import AsyncPerdure
from tests.worker.processes import WorkerProcess, lines
from tests.worker.test_processes import app, server, start, until  # noqa: F401  # fixtures

Start = Callable[..., WorkerProcess]


# -------------------------------------------------------------------------------------------------------------- deploys
async def test_a_deploy_under_load_costs_no_attempt_and_loses_no_completion(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B030, B122, B124, WORK-14: default settings, a new worker beside each that drains, handlers of every kind."""
    path = tmp_path / "out"
    kinds = [("job_append", 600), ("job_append_heavy", 150), ("job_append_in_process", 100)]
    jobs = [
        job
        for name, count in kinds
        for job in await app.enqueue_many(
            name, [{"path": str(path), "line": f"{name} {n}", "seconds": 0.05} for n in range(count)]
        )
    ]
    chance = random.Random(30)
    old = start("--slots", "10", "--process-slots", "1")
    for deploy in range(4):
        goal = 100 + deploy * 150 + chance.randint(0, 50)
        await until(lambda goal=goal: len(lines(path)) >= goal)
        new = start("--slots", "10", "--process-slots", "1")
        old.signal()
        assert await asyncio.to_thread(old.wait) == 0
        old = new
    assert [await job.result(60) for job in jobs] == [job.id for job in jobs]
    assert Counter(lines(path)) == Counter(f"{name} {n}" for name, count in kinds for n in range(count))
    assert Counter([(await job.status()).attempt for job in jobs]) == {1: 850}


async def test_a_file_is_read_again_when_it_changes(server: str, tmp_path: Path) -> None:  # noqa: F811
    """With an error in it meanwhile, and a handler that runs: that may end."""
    file = tmp_path / "reloaded.py"
    source = "from perdure import task\n@task\ndef rl_says(ctx, payload):\n    return {!r}\n"
    file.write_text(source.format("before"))
    worker = WorkerProcess(file, server, "--namespace", "reload", "--reload", "--drain", "5")
    try:
        async with AsyncPerdure(server, namespace="reload") as client:

            async def says(word: str) -> None:
                async with asyncio.timeout(60):
                    while await (await client.enqueue("rl_says")).result(30) != word:
                        await asyncio.sleep(0.05)

            await says("before")
            (first,) = worker.workers()
            file.write_text("def a slip (")
            await until(lambda: first not in worker.workers())
            file.write_text(source.format("after"))
            await says("after")
            worker.signal()
            assert await asyncio.to_thread(worker.wait) == 0
    finally:
        worker.end()


# ----------------------------------------------------------------------------------------------------------------- wear
async def test_a_process_is_replaced_after_so_many_tasks(app: AsyncPerdure, start: Start) -> None:  # noqa: F811
    """Each runs exactly so many, and none of the jobs is begun twice."""
    worker = start("--max-tasks", "20", "--slots", "5")
    jobs = await app.enqueue_many("job_pid", range(100))
    pids = Counter([await job.result(60) for job in jobs])
    assert sorted(pids.values()) == [20] * 5
    assert {(await job.status()).attempt for job in jobs} == {1}
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_a_job_outlives_the_replacement_of_its_process(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The other process is at work before it has ended."""
    path = tmp_path / "out"
    worker = start("--max-tasks", "1", "--drain", "0")
    await until(worker.workers)
    (old,) = worker.workers()
    long = await app.enqueue("job_until", {"path": str(path)})
    await until(lambda: lines(path))
    assert await (await app.enqueue("job_pid")).result(60) != old
    (tmp_path / "out.go").touch()
    assert await long.result(30) == 1
    await until(lambda: old not in worker.workers())


async def test_a_process_with_too_much_memory_is_replaced(app: AsyncPerdure, start: Start) -> None:  # noqa: F811
    """B149."""
    start("--max-memory", "400M")
    first = await (await app.enqueue("job_pid")).result(60)
    await (await app.enqueue("job_grows", 100)).result(60)
    await asyncio.sleep(1.1)  # until it has looked at itself
    assert await (await app.enqueue("job_pid")).result(60) == first
    await (await app.enqueue("job_grows", 500)).result(60)
    async with asyncio.timeout(60):
        while await (await app.enqueue("job_pid")).result(60) == first:
            await asyncio.sleep(0.05)
    await until(lambda: not psutil.pid_exists(first))


# --------------------------------------------------------------------------------------------------------------- health
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status 0 while nobody listens."""

    def get() -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except urllib.error.URLError:
            return 0, {}

    return await asyncio.to_thread(get)


async def answers(port: int, path: str, status: int) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found, body = await ask(port, path)
            if found == status:
                return body
            await asyncio.sleep(0.05)


async def test_health_of_a_worker_that_works_and_drains(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B163: the last poll and the last heartbeat of each process are shown."""
    path = tmp_path / "out"
    port = free_port()
    worker = start("--health", str(port), "--slots", "7", "--processes", "2")
    await app.enqueue("job_until", {"path": str(path)})
    await until(lambda: lines(path))
    async with asyncio.timeout(60):
        while True:
            _, body = await ask(port, "/ready")
            statuses = [process["status"] for process in body.get("processes", [])]
            connected = [s for s in statuses if s and s["connected"]]
            if len(connected) == 2 and sum(s["running"] for s in connected) == 1:
                break
            await asyncio.sleep(0.05)
    assert body["ready"] is True
    assert {process["pid"] for process in body["processes"]} == set(worker.workers())
    assert all(s["slots"] == 7 and s["connected"] and not s["draining"] and s["stuck"] == 0 for s in statuses)
    busy = next(s for s in statuses if s["running"])
    assert busy["poll_age"] < 60
    assert (await ask(port, "/live"))[0] == 200
    worker.signal()
    body = await answers(port, "/ready", 503)
    assert (body["ready"], body["stopping"]) == (False, True)
    assert (await ask(port, "/live"))[0] == 200
    (tmp_path / "out.go").touch()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_a_worker_without_a_server_is_not_ready_but_lives(tmp_path: Path) -> None:
    port = free_port()
    worker = WorkerProcess(
        Path(__file__).with_name("jobs.py"), f"http://127.0.0.1:{free_port()}", "--health", f"127.0.0.1:{port}"
    )
    try:
        async with asyncio.timeout(60):
            while not (body := (await ask(port, "/ready"))[1]) or body["processes"][0]["status"] is None:
                await asyncio.sleep(0.05)
        assert (body["ready"], body["processes"][0]["status"]["connected"]) == (False, False)
        assert (await ask(port, "/live"))[0] == 200
    finally:
        worker.end()


async def test_a_worker_whose_loop_is_blocked_is_not_ready(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """B163, alive but not consuming: a handler blocks the event loop, then the process is frozen."""
    path = tmp_path / "out"
    port = free_port()
    worker = start("--health", str(port))
    await answers(port, "/ready", 200)
    await app.enqueue("job_blocks_the_loop", str(path))
    body = await answers(port, "/ready", 503)
    assert body["processes"][0]["silence"] > 5
    (tmp_path / "out.go").touch()
    await answers(port, "/ready", 200)
    (pid,) = worker.workers()
    os.kill(pid, signal.SIGSTOP)
    await answers(port, "/ready", 503)
    os.kill(pid, signal.SIGCONT)
    await answers(port, "/ready", 200)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--health", "nowhere"], 2, "is no HOST:PORT"),
        (["--health", "203.0.113.1:1"], 10, "cannot listen on 203.0.113.1:1"),
        (["--max-memory", "much"], 2, "is no size such as 512M"),
        (["--max-memory", "1M"], 8, "from the start"),
    ],
)
def test_options_that_are_refused(
    server: str,  # noqa: F811
    options: list[str],
    status: int,
    said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    worker = WorkerProcess(Path(__file__).with_name("jobs.py"), server, *options)
    try:
        assert worker.wait() == status
    finally:
        worker.end()
    printed = capfd.readouterr().err
    assert said in " ".join(printed.replace("│", " ").split())
