"""The supervisor: it restarts, reports deaths, gives up on what is hopeless, and leaves nobody behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from perdure.core.errors import Unavailable
from perdure.worker import supervisor as module
from perdure.worker.process import SUPERVISED, Lifeline
from perdure.worker.receipts import Receipts
from perdure.worker.supervisor import Supervisor

CHILD = """
import os, sys, time
with open(sys.argv[1], "a") as out:
    out.write(os.environ["PERDURE_SUPERVISED"].split(":")[0] + " " + str(os.getpid()) + "\\n")
status = sys.argv[2]
if status != "stay":
    sys.exit(int(status))
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", file=open(sys.argv[1], "a"), flush=True)
while True:
    time.sleep(60)
"""


class Children:
    """What the processes of a supervisor wrote, and whose deaths it reported."""

    def __init__(self, folder: Path, status: str) -> None:
        self.file = folder / "children"
        self.command = [sys.executable, "-c", CHILD, str(self.file), status]
        self.dead: list[int] = []

    async def died(self, incarnation: int, begun: list[bytes]) -> None:
        self.dead.append(incarnation)
        self.begun = begun

    def born(self) -> list[tuple[int, int]]:
        """(incarnation, process id) of each, in order."""
        words = [line.split() for line in self.lines() if line != "ready"]
        return [(int(incarnation), int(pid)) for incarnation, pid in words]

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    async def ready(self, count: int) -> None:
        while self.lines().count("ready") < count:
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
async def patient() -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        yield


async def test_a_death_is_reported_and_another_process_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "YOUNG_SECONDS", 0.0)
    children = Children(tmp_path, "stay")
    supervisor = Supervisor(children.command, 1, children.died)
    running = asyncio.create_task(supervisor.run())
    await children.ready(1)
    ((incarnation, pid),) = children.born()
    os.kill(pid, signal.SIGKILL)
    await children.ready(2)
    assert children.dead == [incarnation]
    assert children.born()[1][0] != incarnation
    supervisor.stop()
    assert await running == 0
    assert children.dead == [incarnation]


async def test_restart_replaces_processes_that_drain(tmp_path: Path) -> None:
    children = Children(tmp_path, "stay")
    supervisor = Supervisor(children.command, 2, children.died)
    running = asyncio.create_task(supervisor.run())
    await children.ready(2)
    supervisor.restart()
    await children.ready(4)
    supervisor.stop()
    assert await running == 0
    assert (len({incarnation for incarnation, _ in children.born()}), children.dead) == (4, [])


async def test_a_hopeless_status_ends_all(tmp_path: Path) -> None:
    children = Children(tmp_path, "2")
    assert await Supervisor(children.command, 1, children.died, frozenset({2})).run() == 2
    assert len(children.born()) == 1


async def test_those_that_die_young_are_started_with_growing_pauses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    children = Children(tmp_path, "3")
    supervisor = Supervisor(children.command, 1, children.died)
    running = asyncio.create_task(supervisor.run())
    while len(children.born()) < 3:
        await asyncio.sleep(0.01)
    supervisor.stop()
    assert await running == 0
    pauses = [record.getMessage() for record in caplog.records if "next worker" in record.getMessage()]
    assert pauses[:2] == ["the next worker starts in 0.5 s", "the next worker starts in 1.0 s"]


async def test_status_0_is_a_death_unless_the_process_was_told_to_drain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler may call `os._exit(0)`: its leases end at once, and the next start waits."""
    children = Children(tmp_path, "0")
    supervisor = Supervisor(children.command, 1, children.died)
    running = asyncio.create_task(supervisor.run())
    while len(children.born()) < 2:
        await asyncio.sleep(0.01)
    assert children.dead[0] == children.born()[0][0]
    supervisor.stop()
    assert await running == 0
    assert "died with status 0" in caplog.text
    assert "the next worker starts in 0.5 s" in caplog.text


async def test_a_restart_cuts_the_pause_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For development: the mended file runs at once."""
    children = Children(tmp_path, "3")
    waiting = asyncio.Event()
    monkeypatch.setattr(module.log, "warning", lambda *_: waiting.set())
    monkeypatch.setattr(module, "LONGEST_PAUSE", 1000.0)
    monkeypatch.setattr(module, "SHORTEST_PAUSE", 1000.0)
    supervisor = Supervisor(children.command, 1, children.died)
    running = asyncio.create_task(supervisor.run())
    await waiting.wait()
    await asyncio.sleep(0)
    supervisor.restart()
    while len(children.born()) < 2:
        await asyncio.sleep(0.01)
    supervisor.stop()
    assert await running == 0


async def test_a_report_that_nobody_hears_does_not_stop_the_supervisor(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    children = Children(tmp_path, "2")

    async def died(incarnation: int, begun: list[bytes]) -> None:
        raise Unavailable("away")

    assert await Supervisor(children.command, 1, died, frozenset({2})).run() == 2
    assert "did not hear of the death" in caplog.text


LEAVING = """
import json, os, signal, sys, time
with open(sys.argv[1], "a") as out:
    out.write(os.environ["PERDURE_SUPERVISED"].split(":")[0] + " " + str(os.getpid()) + "\\n")
tie = int(os.environ["PERDURE_SUPERVISED"].split(":")[1])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
os.write(tie, b'{"lea')
os.write(tie, b'ving": true}\\n')
print("ready", file=open(sys.argv[1], "a"), flush=True)
while not os.path.exists(sys.argv[1] + ".go"):
    time.sleep(0.01)
"""


async def test_one_that_leaves_is_replaced_before_it_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And of those that were replaced no more linger than there are others."""
    children = Children(tmp_path, "stay")
    children.command[2] = LEAVING
    supervisor = Supervisor(children.command, 1, children.died)
    running = asyncio.create_task(supervisor.run())
    await children.ready(2)
    await asyncio.sleep(0.2)
    assert len(children.born()) == 2
    assert len(supervisor.health().processes) == 2
    Path(f"{children.file}.go").touch()
    while len(children.born()) < 4:
        await asyncio.sleep(0.01)
    assert children.dead == []
    assert "died" not in caplog.text
    supervisor.stop()
    assert await running == 0


async def test_what_a_dead_process_has_started_ends_with_it(tmp_path: Path) -> None:
    children = Children(tmp_path, "stay")
    beside = "import subprocess, sys; beside = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)\n"
    say = "print(beside.pid, file=open(sys.argv[1] + '.beside', 'a'), flush=True)\n"
    children.command[2] = beside + say + CHILD
    supervisor = Supervisor(children.command, 1, children.died)
    running = asyncio.create_task(supervisor.run())
    await children.ready(1)
    os.kill(children.born()[0][1], signal.SIGKILL)
    pid = int(Path(f"{children.file}.beside").read_text().split()[0])
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)
    supervisor.stop()
    assert await running == 0


async def test_a_lifeline_ends_with_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with Receipts.file() as file:
        notes = os.dup(file.fileno())
        monkeypatch.setenv(SUPERVISED, f"7:{reading}:{notes}")
        lifeline = Lifeline.taken()
        assert lifeline is not None
        lifeline.receipts.note(b"a" * 28)
        receipts = Receipts(file.fileno())
        assert receipts.recent() == [b"a" * 28]
        for n in range(1000):
            lifeline.receipts.note(n.to_bytes(28))
        assert sorted(receipts.recent()) == [n.to_bytes(28) for n in range(500, 1000)]
    assert lifeline.incarnation == 7
    assert Lifeline.taken() is None
    ended = asyncio.Event()
    lifeline.watch(ended.set)
    await asyncio.sleep(0)
    assert not ended.is_set()
    os.close(writing)
    await ended.wait()
    os.close(reading)
