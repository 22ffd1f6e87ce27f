"""`perdure worker` takes an application's data converter, middleware and lifespan from its Perdure object."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from perdure import AsyncPerdure
from tests.worker.extended import Compressed, extended
from tests.worker.processes import running_server, running_worker

APP = Path(__file__).with_name("extended.py")


async def test_a_worker_process_has_what_the_application_gives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running_server("sqlite:///jobs.db", tmp_path) as url, running_worker(APP, url) as worker:
        async with AsyncPerdure(url, converter=Compressed()) as app:
            job = await app.enqueue(extended, UUID(int=5))
            assert await job.result(60) == ("hello", UUID(int=5))
            view = await job.status()
            assert view.result is not None
            assert view.result[0].metadata == {"encoding": "binary/zlib"}
        worker.signal()
        assert worker.wait() == 0
    log = capfd.readouterr().err
    mark = f"extended {job.id} attempt 1: "
    for line in ("enter", f"{mark}inside", f"{mark}returned", "leave"):
        assert f"INFO extended: {line}\n" in log, log
