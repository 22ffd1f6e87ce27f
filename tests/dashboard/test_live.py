"""Pages that tell of their changes by server-sent events."""

from __future__ import annotations

import json

import aiohttp
import pytest

from perdure import AsyncPerdure
from perdure.api.server import Server
from perdure.dashboard import site, workflows
from tests.dashboard.jobs import ok, waiting
from tests.dashboard.reader import Reader, until


async def test_a_page_is_sent_again_when_it_has_changed(app: AsyncPerdure, pages: Reader) -> None:
    await pages.get()  # the cookie that its forms need
    job = await app.enqueue(ok, 1)
    async with pages.live(f"task?id={job.id}") as frames:
        assert "ENQUEUED" in _html(await anext(frames))
        await app.cancel(job.id)
        assert "CANCELED" in _html(await anext(frames))


async def test_a_page_that_stays_as_it_is_is_sent_once(pages: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there are signs of life, and forms keep their request id, or each look would be a change."""
    monkeypatch.setattr(site, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(site, "BEAT_SECONDS", 0.05)
    async with pages.live("schedules") as frames:
        assert "No schedules here" in _html(await anext(frames))
        assert await anext(frames) == ": alive"
        assert await anext(frames) == ": alive"


@pytest.mark.parametrize("view", ["timeline", "graph", "replay"])
async def test_a_long_history_is_not_read_at_each_look(
    app: AsyncPerdure, pages: Reader, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    """What tells how a run stands follows it; its drawing stays as it was when the page was loaded."""
    monkeypatch.setattr(workflows, "LONG", 0)
    run = await app.start_workflow(waiting, id="long", queue="unserved")
    page = f"workflow?id={run.id}&view={view}"
    assert 'id="tab"' in (await pages.get(page)).html
    async with pages.live(page) as frames:
        html = _html(await anext(frames))
        assert 'id="standing"' in html and 'id="tab"' not in html
    async with pages.live(f"workflow?id={run.id}") as frames:
        assert 'id="tab" data-live' in _html(await anext(frames))


async def test_a_server_that_stops_ends_them_at_once(server: Server, pages: Reader) -> None:
    async with pages.live("tasks") as frames:
        await anext(frames)
        await server.stop()
        try:
            assert [frame async for frame in frames] == []
        except aiohttp.ClientPayloadError:
            raise AssertionError("cut off, not ended") from None


async def test_so_many_at_once(pages: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MAX_LIVE", 1)

    async def answered() -> int:
        async with pages.session.get(f"{pages.base}tasks", headers={"Accept": "text/event-stream"}) as answer:
            return answer.status

    async with pages.live("tasks") as frames:
        await anext(frames)
        assert await answered() == 429

    async def free_again() -> bool:
        return await answered() == 200

    await until(free_again)


def _html(frame: str) -> str:
    assert frame.startswith("data: "), frame
    return str(json.loads(frame.removeprefix("data: ")))
