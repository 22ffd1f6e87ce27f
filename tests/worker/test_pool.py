"""Handlers in processes of their own: what they may do there, how they are stopped, and how they die."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from perdure import Context, task
from perdure.core.model import Failure
from perdure.sdk.converter import from_payloads
from perdure.sdk.middleware import Middleware
from perdure.worker import pool
from perdure.worker.execute import Environment
from perdure.worker.worker import Worker
from tests.worker import computing  # its tasks
from tests.worker.fake import FakeService
from tests.worker.processes import lines


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "COOPERATE_SECONDS", 0.3)
    monkeypatch.setattr(pool, "TERMINATE_SECONDS", 0.5)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def failure(service: FakeService, lease: bytes) -> Failure:
    report = await service.reported(lease)
    assert report.outcome == "failed", report
    assert report.failure is not None
    return report.failure


def gone(pid: str | int) -> bool:
    try:
        return psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# ------------------------------------------------------------------------------------------------------------ what runs
async def test_payload_in_and_result_out(service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    """TASK-17: what `ctx` knows, in a process that is used again. What it logs is logged here, with its task."""
    caplog.set_level(logging.INFO)
    async with Worker(service, process_slots=1):
        assert await service.result(await service.give("pc_echo", {"a": [1, "ä", None]})) == {"a": [1, "ä", None]}
        checkpoint = (await service.reported(await service.give("pc_echo", {"at": 1}))).result
        first, second = [
            await service.result(await service.give("pc_pid", attempt=2, checkpoint=checkpoint, headers={"h": "v"}))
            for _ in range(2)
        ]
    assert first == second
    assert first[1:] == [2, {"at": 1}, {"h": "v"}]
    assert first[0] != os.getpid()
    await until(lambda: gone(first[0]))
    (record, _) = [record for record in caplog.records if record.name == "application"]
    assert (record.getMessage(), record.attempt) == ("this is pc_pid in attempt 2", 2)  # type: ignore[attr-defined]


async def test_failures_are_what_they_are_elsewhere(service: FakeService) -> None:
    async with Worker(service, process_slots=1):
        fatal = await failure(service, await service.give("pc_raises", "luck"))
        bad = await failure(service, await service.give("pc_returns_what_no_json_is"))
        assert await service.result(await service.give("pc_dies", "no")) == "unharmed"
        left = await failure(service, await service.give("pc_dies", "sys.exit"))
    assert (fatal.code, fatal.message, fatal.retryable) == ("fatal", "no luck", False)
    assert "pc_raises" in fatal.stack
    assert "run_plain" not in fatal.stack
    assert bad.code == "unencodable_result"
    assert (left.type, left.code) == ("SystemExit", "handler_error")


async def test_progress_and_checkpoints_come_with_heartbeats(service: FakeService, tmp_path: Path) -> None:
    """TASK-22, JOB-10: they are not brought again at the end."""
    path = str(tmp_path / "out")
    async with Worker(service, process_slots=1):
        lease = await service.give("pc_reports", path)
        await until(lambda: any(beat.checkpoint for beat in service.beats_of(lease)))
        await until(lambda: any(beat.progress for beat in service.beats_of(lease)))
        (tmp_path / "out.go").touch()
        report = await service.reported(lease)
    (checkpoint,) = [beat.checkpoint for beat in service.beats_of(lease) if beat.checkpoint]
    (progress,) = [beat.progress for beat in service.beats_of(lease) if beat.progress]
    assert from_payloads(checkpoint, "checkpoint") == {"at": 3}
    assert (progress.done, progress.total, progress.message) == (3, 10, "half way")
    assert (report.checkpoint, report.progress) == (None, None)


async def test_never_more_processes_than_process_slots(service: FakeService, tmp_path: Path) -> None:
    """What does not fit is handed back, so that another worker can have it; the rest of the slots goes on working."""
    async with Worker(service, process_slots=2, slots=10, queues=["default", "other"]) as worker:
        leases = [await service.give("pc_reports", str(tmp_path / str(n))) for n in range(3)]
        await until(lambda: len(list(tmp_path.iterdir())) == 2)
        assert (await service.reported(leases[2])).outcome == "released"
        assert worker.status().running == 2
        assert await service.result(await service.give("echo", 1)) == 1
        for n in range(2):
            (tmp_path / f"{n}.go").touch()
        for lease in leases[:2]:
            await service.result(lease)


class Tag(Middleware):
    def before(self, ctx: Context, payload: Any) -> None:
        payload["tagged"] = os.getpid()


async def test_middleware_runs_in_the_process(service: FakeService) -> None:
    async with Worker(service, process_slots=1, environment=Environment(middleware=(Tag(),))):
        assert (await service.result(await service.give("pc_echo", {})))["tagged"] != os.getpid()


async def test_what_cannot_be_sent_to_processes_is_an_error_at_once(service: FakeService) -> None:
    class Local(Middleware): ...

    with pytest.raises(TypeError, match="cannot be sent to the processes"):
        async with Worker(service, environment=Environment(middleware=(Local(),))):
            raise AssertionError("it must not start")


def test_a_process_cannot_load_what_is_in_a_function_or_run_what_is_async() -> None:
    with pytest.raises(TypeError, match="defined in a function"):

        @task(process=True)
        def local(ctx: Context, payload: Any) -> None: ...

    with pytest.raises(TypeError, match="is async"):
        task(process=True)(asyncio.sleep)


async def test_a_task_that_the_process_cannot_load_fails(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when files were replaced under a running worker."""
    monkeypatch.setattr(computing.pc_echo.function, "__module__", "tests.worker.no_such_module")
    async with Worker(service, process_slots=1):
        failed = await failure(service, await service.give("pc_echo"))
        assert await service.result(await service.give("pc_dies", "no")) == "unharmed"
    assert failed.code == "handler_not_loaded"
    assert "no_such_module" in failed.message
    assert failed.retryable


# ---------------------------------------------------------------------------------------------------------- how it dies
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("segfault", "was ended by SIGSEGV"),
        ("exit", "ended with status 3"),
        ("killed", "was ended by SIGKILL; is the machine out of memory?"),
        ("pipe", "ended"),
    ],
)
async def test_a_process_that_dies_fails_its_own_attempt(service: FakeService, how: str, said: str) -> None:
    """The worker lives, the other process goes on, and the dead one is replaced."""
    async with Worker(service, process_slots=2):
        failed = await failure(service, await service.give("pc_dies", how))
        assert (failed.code, failed.type, failed.retryable) == ("process_died", "ProcessDied", True)
        assert said in failed.message
        assert await service.result(await service.give("pc_echo", 1)) == 1
    assert [closed.reason for closed in service.closed] == ["goodbye"]


async def test_an_idle_process_that_was_killed_is_replaced(service: FakeService) -> None:
    async with Worker(service, process_slots=1):
        first = (await service.result(await service.give("pc_pid")))[0]
        os.kill(first, signal.SIGKILL)
        await until(lambda: gone(first))
        second = (await service.result(await service.give("pc_pid")))[0]
    assert first != second


@pytest.mark.parametrize("how", ["exit", "killed"])
async def test_a_process_that_somebody_else_has_reaped(service: FakeService, how: str) -> None:
    """A handler beside it said that nobody waits for children: how it ended is not known, but that it did."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        async with Worker(service, process_slots=1), asyncio.timeout(30):
            failed = await failure(service, await service.give("pc_dies", how))
            assert (failed.code, failed.message) == ("process_died", "the process of the handler has ended")
            assert await service.result(await service.give("pc_echo", 1)) == 1
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_a_handler_that_becomes_another_program(service: FakeService) -> None:
    """Which cannot answer: it is ended."""
    async with Worker(service, process_slots=1), asyncio.timeout(30):
        assert (await failure(service, await service.give("pc_dies", "exec"))).code == "process_died"
        assert await service.result(await service.give("pc_echo", 1)) == 1


async def test_a_copy_that_the_handler_forks_reports_nothing(service: FakeService, tmp_path: Path) -> None:
    async with Worker(service, process_slots=1):
        assert await service.result(await service.give("pc_forks", str(tmp_path / "out"))) == "original"
        assert await service.result(await service.give("pc_echo", 1)) == 1
    (copy,) = lines(tmp_path / "out")
    assert gone(copy)


async def test_a_handler_that_closes_its_output(service: FakeService) -> None:
    async with Worker(service, process_slots=1):
        assert await service.result(await service.give("pc_closes_output")) == "done"
        assert await service.result(await service.give("pc_echo", 1)) == 1


# ---------------------------------------------------------------------------------------------------- how it is stopped
async def start_and_cancel(service: FakeService, name: str, path: Path) -> bytes:
    lease = await service.give(name, str(path))
    await until(lambda: lines(path))
    service.actions[lease] = "cancel"
    return lease


async def test_cancel_reaches_a_handler_that_looks(service: FakeService, tmp_path: Path) -> None:
    """B121, CANC-02: and its process is used again."""
    path = tmp_path / "out"
    async with Worker(service, process_slots=1):
        lease = await start_and_cancel(service, "pc_cooperates", path)
        assert (await service.reported(lease)).outcome == "canceled"
        pid, stop = lines(path)
        assert stop == "cancel"
        assert (await service.result(await service.give("pc_pid")))[0] == int(pid)


async def test_cancel_interrupts_python_code_that_does_not_look(service: FakeService, tmp_path: Path) -> None:
    """B121, WORK-16: its `finally` blocks run, and its process is used again."""
    path = tmp_path / "out"
    async with Worker(service, process_slots=1):
        lease = await start_and_cancel(service, "pc_computes", path)
        assert (await service.reported(lease)).outcome == "canceled"
        pid, said = lines(path)
        assert said == "cleaned up"
        assert (await service.result(await service.give("pc_pid")))[0] == int(pid)


async def test_cancel_kills_c_code_and_what_the_handler_started(
    service: FakeService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """B121, B003: the interpreter is never free, and neither the worker nor its heartbeats notice."""
    path = tmp_path / "out"
    async with Worker(service, process_slots=1):
        lease = await start_and_cancel(service, "pc_is_in_c", path)
        await service.beaten_for(lease, 3)
        assert (await service.reported(lease)).outcome == "canceled"
        pid, beside = lines(path)
        assert (await service.result(await service.give("pc_pid")))[0] != int(pid)
        await until(lambda: gone(beside))
    assert "its process is killed" in caplog.text


async def test_a_time_out_kills_what_ignores_everything(service: FakeService, tmp_path: Path) -> None:
    """B023, TMO-03: the slot is free, and no code of this attempt runs any more."""
    path = tmp_path / "out"
    async with Worker(service, process_slots=1, slots=1):
        await service.result(await service.give("pc_echo", 1))  # the process is there
        lease = await service.give("pc_ignores_everything", str(path), start_to_close=1.0)
        failed = await failure(service, lease)
        assert failed.code == "start_to_close_timeout"
        assert lines(path)[1:] == ["Cancelled"]
        assert gone(lines(path)[0])
        assert await service.result(await service.give("echo", 1)) == 1


async def test_a_lost_lease_ends_the_handler_and_reports_nothing(service: FakeService, tmp_path: Path) -> None:
    """LEASE-12."""
    path = tmp_path / "out"
    async with Worker(service, process_slots=1) as worker:
        lease = await service.give("pc_computes", str(path))
        await until(lambda: lines(path))
        service.actions[lease] = "lost"
        await until(lambda: worker.status().running == 0)
    assert lease not in service.reports
    assert lines(path)[1:] == ["cleaned up"]


@pytest.mark.parametrize("name", ["pc_computes", "pc_is_in_c"])
async def test_a_drain_hands_back_what_goes_on(service: FakeService, tmp_path: Path, name: str) -> None:
    """B030, B123: no attempt is spent, and no process stays behind."""
    path = tmp_path / "out"
    async with Worker(service, process_slots=1, drain_seconds=0.1):
        lease = await service.give(name, str(path))
        await until(lambda: lines(path))
    assert service.reports[lease].outcome == "released"
    await until(lambda: gone(lines(path)[0]))


# --------------------------------------------------------------------------------------------------------------- limits
async def test_a_process_leaves_after_so_many_tasks(service: FakeService) -> None:
    async with Worker(service, process_slots=1, max_tasks=5):
        pids = [(await service.result(await service.give("pc_pid")))[0] for _ in range(4)]
    assert len(set(pids)) == 1
    service = FakeService()
    async with Worker(service, process_slots=1) as worker:
        worker._processes()._limits = (2, None)
        pids = [(await service.result(await service.give("pc_pid")))[0] for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_a_process_leaves_when_it_has_too_much_memory(service: FakeService) -> None:
    """B149."""
    own = psutil.Process().memory_info().rss  # that of its process is no more
    async with Worker(service, process_slots=1, max_memory=own + (300 << 20)):
        small = [await service.result(await service.give("pc_grows", 1)) for _ in range(2)]
        assert small[0] == small[1]
        assert await service.result(await service.give("pc_grows", 700 + (own >> 20))) == small[0]
        assert await service.result(await service.give("pc_grows", 1)) != small[0]
