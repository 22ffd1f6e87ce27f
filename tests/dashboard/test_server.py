"""The dashboard of a server process, as it is started from a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import AsyncPerdure, TaskFailed
from perdure.app import running_server as running_app_server
from perdure.dashboard.site import invite
from perdure.database import migrate
from tests.dashboard.jobs import bad, ok, waiting
from tests.dashboard.reader import reader
from tests.worker.processes import running_server


@pytest.mark.parametrize("mode", [None, "off", "read-only"])
async def test_a_server_has_it_unless_told_otherwise(mode: str | None, tmp_path: Path) -> None:
    options = () if mode is None else ("--dashboard", mode)
    with running_server("sqlite:///jobs.db", tmp_path, *options) as url:
        async with reader(url) as pages:
            seen = await pages.get()
            assert seen.status == (404 if mode == "off" else 200)
            assert ("This dashboard is read-only" in seen.text) == (mode == "read-only")
            assert (await pages.get("healthz")).status == 200
            async with pages.session.head(url) as answer:
                assert answer.status == seen.status
                assert await answer.read() == b""


async def test_every_page_on_postgresql(postgres_database: str) -> None:
    """What pages ask for is the same on both databases; how it looks is tested on one."""
    await migrate(postgres_database)
    async with (
        running_app_server(postgres_database, "127.0.0.1", 0, invite()) as url,
        AsyncPerdure(url) as app,
        app.worker(queues=["default"], drain_seconds=0.1),
        reader(url) as pages,
    ):
        failed = await app.enqueue(bad, "no")
        with pytest.raises(TaskFailed):
            await failed.result()
        await app.start_workflow(waiting, None, id="w")
        await app.create_schedule("nightly", task=ok, cron="@daily")
        home = await pages.get()
        tops = [link.removeprefix("./") for link in home.links if not link.startswith("#")]
        for page in tops:
            seen = await pages.get(page)
            assert seen.status == 200, (page, seen.text)
            for link in seen.links[len(tops) :]:
                if not link.startswith("#"):
                    assert (await pages.get(link.removeprefix("./"))).status == 200, link
