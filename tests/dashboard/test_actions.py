"""What forms do, each once however often it is sent, and a count before anything happens to many tasks (RETRY-07)."""

from __future__ import annotations

import asyncio

import pytest

from perdure import AsyncPerdure, TaskFailed
from tests.dashboard.jobs import ORDER, Order, bad, ok
from tests.dashboard.reader import Reader, until


async def test_a_task_is_canceled_and_retried(app: AsyncPerdure, pages: Reader) -> None:
    """Field case B012: a retry in the dashboard is the retry of the API, and the new task names the old one."""
    job = await app.enqueue(ok, 1)
    page = await pages.get(f"task?id={job.id}")
    seen = await pages.send(page.form("task-cancel"), reason="not wanted")
    assert "CANCELED" in seen.text and "not wanted" in seen.text and "It is canceled" in seen.text
    again = await pages.send(seen.form("task-retry"))
    assert f"Retry of {job.id}" in again.text and "ENQUEUED" in again.text
    assert "Retried by" in (await pages.get(f"task?id={job.id}")).text


async def test_what_cannot_be_done_is_said(app: AsyncPerdure, pages: Reader) -> None:
    job = await app.enqueue(ok, 1)
    form = (await pages.get(f"task?id={job.id}")).form("task-cancel")
    seen = await pages.send(form, id=job.id, reason="x" * 2001)
    assert seen.status == 400 and "reason is too long" in seen.text
    form.action = "task-retry"
    assert (await pages.send(form)).status == 409


async def test_many_tasks_are_counted_first_and_then_retried(app: AsyncPerdure, pages: Reader) -> None:
    """OBS-25: bulk retry."""
    async with app.worker(queues=["default"]):
        jobs = [await app.enqueue(bad, "no") for _ in range(7)]
        for job in jobs:
            with pytest.raises(TaskFailed):
                await job.result()
    listed = await pages.get("tasks?state=FAILED")
    count = await pages.get(next(link for link in listed.links if link.startswith("bulk?action=retry")))
    assert "Retry 7 tasks?" in count.text
    assert (await app.find(state="ENQUEUED")).tasks == [], "a count does nothing"
    form = count.form("bulk-start")
    begun = await asyncio.gather(pages.send(form), pages.send(form))
    assert begun[0].url == begun[1].url, "sent twice, begun once"

    async def over() -> bool:
        return "SUCCEEDED 7 done" in (await pages.get(begun[0].url.removeprefix(pages.base))).text

    await until(over)
    assert len((await app.find(state="ENQUEUED")).tasks) == 7


async def test_many_tasks_are_canceled_with_a_reason(app: AsyncPerdure, pages: Reader) -> None:
    await app.enqueue_many(ok, [1, 2, 3], queue="slow")
    listed = await pages.get("tasks?state=ENQUEUED&queue=slow")
    count = await pages.get(next(link for link in listed.links if link.startswith("bulk?action=cancel")))
    seen = await pages.send(count.form("bulk-start"), reason="moved")

    async def over() -> bool:
        return "SUCCEEDED 3 done" in (await pages.get(seen.url.removeprefix(pages.base))).text

    await until(over)
    assert {task.cancel_reason for task in (await app.find(state="CANCELED")).tasks} == {"moved"}


async def test_many_runs_are_terminated(app: AsyncPerdure, pages: Reader) -> None:
    runs = [await app.start_workflow(Order, {}, id=f"many-{number}", queue="slow") for number in range(3)]
    assert not any(link.startswith("bulk") for link in (await pages.get("workflows?workflow_id=many-1")).links)
    listed = await pages.get("workflows?queue=slow")
    count = await pages.get(next(link for link in listed.links if link.startswith("bulk?action=terminate_runs")))
    assert "Terminate 3 runs?" in count.text
    seen = await pages.send(count.form("bulk-start"), reason="moved")

    async def over() -> bool:
        return "SUCCEEDED 3 done" in (await pages.get(seen.url.removeprefix(pages.base))).text

    await until(over)
    assert {(await run.describe()).status for run in runs} == {"TERMINATED"}


async def test_an_action_is_about_what_a_search_found(app: AsyncPerdure, pages: Reader) -> None:
    """VIS-01 and OBS-25: the same filter in the list and in the action, and nothing beyond it."""
    kept = await app.enqueue(ok, 1, queue="slow", priority=1)
    gone = await app.enqueue(ok, 2, queue="mail")
    listed = await pages.get("tasks?state=ENQUEUED&query=TaskQueue+%3D+'mail'")
    assert gone.id in listed.text and kept.id not in listed.text
    count = await pages.get(next(link for link in listed.links if link.startswith("bulk?action=cancel")))
    assert "Cancel 1 task?" in count.text and "TaskQueue = 'mail'" in count.text
    seen = await pages.send(count.form("bulk-start"))

    async def over() -> bool:
        return "SUCCEEDED 1 done" in (await pages.get(seen.url.removeprefix(pages.base))).text

    await until(over)
    assert (await app.get(kept.id)).state == "ENQUEUED"
    wrong = await pages.get("tasks?query=TaskQeue+%3D+1")
    assert wrong.status == 400 and "TaskQueue" in wrong.text, "a suggestion"


async def test_a_workflow_is_asked_told_and_changed(app: AsyncPerdure, pages: Reader) -> None:
    """SIG-01, SIG-08, SIG-11, CANC-10, RPLY-39, SAGA-05 from forms."""
    async with app.worker(queues=["default"]):
        run = await app.start_workflow(Order, {"n": 1}, id=ORDER)
        page = await pages.get(f"workflow?id={ORDER.replace('&', '%26')}")
        assert "Bonn" in (await pages.send(page.form("workflow-query"), name="where")).text
        assert "moved to Köln" in (await pages.send(page.form("workflow-update"), name="move", input='"Köln"')).text
        wrong = await pages.send(page.form("workflow-signal"), name="approve", input="{never")
        assert wrong.status == 400 and "the input is not JSON" in wrong.text
        paused = await pages.send(page.form("workflow-pause"))
        assert "PAUSED" in paused.text
        resumed = await pages.send(paused.form("workflow-pause"))
        assert "PAUSED" not in resumed.text
        told = await pages.send(page.form("workflow-signal"), name="approve", input='"never"')
        assert "The signal is in the inbox" in told.text
        with pytest.raises(TaskFailed):
            await run.result()
        failed = await pages.get(f"workflow?id={ORDER.replace('&', '%26')}")
        assert "not approved" in failed.text and not failed.offers("workflow-signal")
        noted = await pages.send(failed.form("workflow-resolve"), note="sent by hand")
        assert "sent by hand" in noted.text
        unread = await pages.send(failed.form("workflow-reset"), step="reserve", event="last")
        assert unread.status == 400 and "field event: a number" in unread.text
        again = await pages.send(failed.form("workflow-reset"), step="reserve")
        assert "this is the new run" in again.text and "RUNNING" in again.text
        ended = await pages.send(again.form("workflow-terminate"), reason="enough")
        assert "TERMINATED" in ended.text


async def test_queues_are_paused_and_capped(app: AsyncPerdure, pages: Reader) -> None:
    await app.enqueue(ok, 1, queue="mail")
    page = await pages.get("queues")
    paused = await pages.send(page.form("limit-pause"))
    assert "PAUSED" in paused.text
    assert "PAUSED" not in (await pages.send(paused.form("limit-pause"))).text
    capped = await pages.send(page.form("limit-set"), name="mail", max_running="5", rate="10/s")
    assert "0 of 5" in capped.text and "10/s" in capped.text
    assert (await pages.send(page.form("limit-set"), name="mail", max_running="-1")).status == 400
    free = await pages.send(page.form("limit-set"), name="mail")
    assert "0 of 5" not in free.text


async def test_a_schedule_is_paused_and_triggered(app: AsyncPerdure, pages: Reader) -> None:
    await app.create_schedule("nightly", task=ok, cron="30 3 * * *")
    page = await pages.get("schedule?id=nightly")
    paused = await pages.send(page.form("schedule-pause"), note="holidays")
    assert "paused" in paused.text and "holidays" in paused.text
    form = page.form("schedule-trigger")
    await pages.send(form)
    await pages.send(form)
    assert len((await app.find()).tasks) == 1, "sent twice, triggered once"
    assert "active" in (await pages.send(paused.form("schedule-pause"))).text
