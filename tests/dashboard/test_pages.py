"""Every page, read without a browser, over a server that has something of everything (VIS, OBS-06, OBS-25)."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import AsyncPerdure, TaskFailed
from perdure.core import bulk
from perdure.dashboard.pages import ACTIONS, PAGES
from perdure.dashboard.tasks import BULK, ROWS
from tests.dashboard.jobs import ORDER, Order, bad, hangs, ok, talks, waiting
from tests.dashboard.reader import Reader, until


async def test_an_empty_server_shows_its_pages(pages: Reader) -> None:
    for page in ("", "tasks", "workflows", "failures", "schedules", "queues", "workers"):
        seen = await pages.get(page)
        assert seen.status == 200, (page, seen.text)
        assert "Overview Tasks Workflows Failures Schedules Queues Workers" in seen.text


async def test_tasks_are_listed_and_shown_whole(app: AsyncPerdure, pages: Reader) -> None:
    """OBS-06: state, worker, times, payload, result, progress, error class and stack."""
    async with app.worker(queues=["default"]):
        good = await app.enqueue(ok, 7)
        await good.result()
        failed = await app.enqueue(bad, "no such card")
        with pytest.raises(TaskFailed):
            await failed.result()
    listed = await pages.get("tasks")
    assert good.id in listed.text and failed.id in listed.text
    assert "FatalError: no such card" in listed.text, "a list says why (field case B160)"
    only = await pages.get("tasks?state=FAILED&type=&queue=")
    assert good.id not in only.text and failed.id in only.text
    seen = await pages.get(f"task?id={good.id}")
    assert "SUCCEEDED" in seen.text and '"paid": 7' in seen.text and "half of it" in seen.text
    assert not seen.offers("task-cancel") and not seen.offers("task-retry")
    seen = await pages.get(f"task?id={failed.id}")
    assert "raise FatalError(str(payload))" in seen.html
    assert any(tag == "rect" for tag, _ in seen.tags), "attempts over time"
    assert (await pages.get(f"task-value?id={good.id}&part=result")).html.split() == ["{", '"paid":', "7", "}"]


async def test_what_a_task_wrote_to_its_stream_is_shown(app: AsyncPerdure, pages: Reader) -> None:
    async with app.worker(queues=["default"]):
        job = await app.enqueue(talks, 7)
        await job.result()
    seen = await pages.get(f"task?id={job.id}")
    assert "first <b>words</b>" in seen.text and '{"n":7}' in seen.text


async def test_a_task_that_waits_says_for_what(app: AsyncPerdure, pages: Reader) -> None:
    """Field case B160, B157: the reason, and when something happens next, in the list and on the page."""
    soon = await app.enqueue(ok, 1, delay=3600)
    lonely = await app.enqueue(ok, 1, queue="nobody")
    listed = await pages.get("tasks")
    assert "its start time" in listed.text
    page = await pages.get(f"task?id={soon.id}")
    assert "Something happens by itself at" in page.text
    assert "none is registered for queue 'nobody'" in (await pages.get(f"task?id={lonely.id}")).text
    assert "has work, and no worker polls it" in (await pages.get("")).text


async def test_a_workflow_is_shown_from_every_side(app: AsyncPerdure, pages: Reader) -> None:
    """OBS-07, OBS-08, OBS-25: what it waits for, history, time line, step graph, replay; RPLY-41."""
    async with app.worker(queues=["default"]):
        run = await app.start_workflow(Order, {"n": 1}, id=ORDER)
        await _at_signal(run)
        listed = await pages.get("workflows")
        assert ORDER in listed.text and "a signal" in listed.text
        link = next(link for link in listed.links if link.startswith("workflow?id=order"))
        seen = await pages.get(link)
        assert "waits for a signal" in seen.text and "WorkflowExecutionStarted" in seen.text
        drawn = await pages.get(f"{link}&view=graph")
        boxes = [given for tag, given in drawn.tags if tag == "rect" and "box" in str(given["class"])]
        assert len(boxes) == 3
        assert boxes[0]["y"] == boxes[1]["y"] < boxes[2]["y"], "two at once, then the step below them"
        assert '{ "paid": 1 }' in drawn.text, "results are in the tooltips"
        lasted = await pages.get(f"{link}&view=timeline")
        assert sum(tag == "rect" for tag, _ in lasted.tags) == 3
        await run.signal("approve", "yes")
        await run.result()
    stepped = await pages.get(f"{link}&view=replay&event=6")
    assert "event 6 of" in stepped.text and "Under way then (2)" in stepped.text
    last = await pages.get(f"{link}&view=replay&event=999999")
    assert "WorkflowExecutionCompleted" in last.text
    assert '"said": "yes"' in (await pages.get(link)).text
    whole = await pages.get(link.replace("workflow?", "event?") + "&event=1")
    assert '"workflow_id": "order/7 & co"' in whole.html


async def _at_signal(run: Any) -> None:
    """The step is over: only the signal is missing."""

    async def waits() -> bool:
        return "signal" in (await run.describe()).waiting_for

    await until(waits)


async def test_failures_are_grouped(app: AsyncPerdure, pages: Reader) -> None:
    """RETRY-06."""
    async with app.worker(queues=["default"]):
        jobs = [await app.enqueue(bad, f"card {number} is refused") for number in range(3)]
        for job in jobs:
            with pytest.raises(TaskFailed):
                await job.result()
    groups = await pages.get("failures")
    assert "card <n> is refused" in groups.text
    letters = await pages.get(next(link for link in groups.links if link.startswith("failures?group=")))
    assert all(job.id in letters.text for job in jobs)
    assert "Retry all of these" in letters.text


async def test_schedules_show_their_next_times_in_their_own_zone_too(app: AsyncPerdure, pages: Reader) -> None:
    await app.create_schedule("nightly", task=ok, cron="30 3 * * *", timezone="Asia/Kolkata")
    assert "nightly" in (await pages.get("schedules")).text
    seen = await pages.get("schedule?id=nightly")
    assert "03:30:00" in seen.text and "+05:30" in seen.text
    assert any(tag == "time" and str(given["datetime"]).endswith("22:00:00.000Z") for tag, given in seen.tags)


async def test_workers_show_what_they_run(app: AsyncPerdure, pages: Reader) -> None:
    """Jobs, and activities with the run that they belong to."""
    async with app.worker(queues=["default"], drain_seconds=0.1):
        job = await app.enqueue(hangs, 1)
        await app.start_workflow(waiting, None, id="waiting")

        async def both() -> bool:
            return (await pages.get("workers")).text.count("dashboard_hangs") == 2

        await until(both)
        seen = await pages.get("workers")
        assert "activity dashboard_hangs of waiting" in seen.text
        assert f"task?id={job.id}" in seen.links


async def test_queues_and_workers(app: AsyncPerdure, pages: Reader) -> None:
    await app.set_limit("queue", "default", max_running=0)
    await app.enqueue(ok, 1)
    async with app.worker(queues=["default", "mail"], slots=7):

        async def registered() -> bool:
            return len(await app.workers()) == 1

        await until(registered)
        workers = await pages.get("workers")
        assert "mail" in workers.text and " 7 " in workers.text
        assert "0 of 0" in (await pages.get("queues")).text


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("bulk?action=cancel", 400),
        ("event?id=none&event=1", 404),
        ("schedule?id=none", 404),
        ("task", 400),
        ("task-cancel", 404),
        ("task?id=none", 400),
        ("tasks?cursor=%FF%00", 400),
        ("tasks?state=BORED", 400),
        ("workflow?id=%ED%A0%80", 404),
        ("workflow?id=x&view=inside-out", 404),
        ("workflows?status=BORED", 400),
    ],
)
async def test_what_is_wrong_is_said(pages: Reader, page: str, status: int) -> None:
    seen = await pages.get(page)
    assert seen.status == status, seen.text
    assert "To the overview" in seen.text


async def test_a_field_of_any_name_does_no_harm(app: AsyncPerdure, pages: Reader) -> None:
    await app.enqueue_many(ok, range(ROWS + 1))
    seen = await pages.get("tasks?page=2&self=1&query=")
    assert seen.status == 200 and any("page=2" in link and "cursor=" in link for link in seen.links)


async def test_rest_is_where_it_was(pages: Reader) -> None:
    assert (await pages.get("healthz")).html == '{"status":"ok"}'
    assert (await pages.get("no-such-page")).headers["content-type"] == "application/problem+json"
    assert (await pages.get("v1/tasks")).status == 200


def test_pages_and_actions_have_addresses_of_their_own() -> None:
    assert not PAGES.keys() & ACTIONS.keys()


def test_buttons_are_offered_for_what_can_be_done() -> None:
    """The rule is core's; the pages know its words only."""
    for action, states in BULK.items():
        assert states == tuple(state.name for state in bulk.STATES[action]), action
