"""Section B of the field cases: cron and schedules. The clock jumps from alarm to alarm; stores are real."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
import zoneinfo
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Conflict, InvalidArgument, NotFound
from perdure.api.schedule_drafts import timing as checked
from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core import schedule_messages as s
from perdure.core.calendar import Timing, clock, next_after, upcoming, zone
from perdure.core.cron import parse
from perdure.core.model import SECOND, RetryPolicy
from perdure.database import migrate
from perdure.engine.engine import Engine
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.schedules.flow import Flow, micros, payload, rfc
from tests.store.conftest import CONCURRENT, make_store, opened


@pytest.fixture
def flow(drive: Drive, clock: SteppedClock) -> Flow:
    return Flow(drive, clock, "2026-01-01T00:00:00+00:00")


def at(flow: Flow, moment: str) -> None:
    flow.clock.advance((micros(moment) - flow.clock.now()) / SECOND)


def between(timing: Timing, start: str, end: str) -> list[str]:
    """Nominal times after `start`, not after `end`."""
    found: list[str] = []
    moment = next_after(timing, micros(start))
    while moment is not None and moment <= micros(end):
        found.append(rfc(moment))
        moment = next_after(timing, moment)
    return found


async def test_b034_schedules_go_on_after_an_outage_of_the_database(flow: Flow) -> None:
    """Every five seconds, and nothing for a minute; then the policy for what was missed, once."""
    at(flow, "2026-03-01T00:00:01+00:00")
    await flow.put(interval=5)
    await flow.until("2026-03-01T00:00:20+00:00")
    flow.sleep(62)
    await flow.until("2026-03-01T00:01:35+00:00")
    assert flow.times[-4:] == [f"2026-03-01T00:01:{n}Z" for n in ("20", "25", "30", "35")]
    assert len(flow.times) == 4 + 4
    assert (await flow.view()).counts == {"started": 8, "missed": 11}


async def test_b048_what_a_schedule_says_of_its_tasks_holds(flow: Flow) -> None:
    """Every option of a task, read back from one that a firing made."""
    times = m.TimeoutOptions(start_to_close="10m", schedule_to_close=7200, heartbeat=5, lease=60, schedule_to_start=30)
    template = s.TaskTemplate(
        "t",
        payload("[1, 2]"),
        "reports",
        "billing",
        1,
        "tenant",
        "printer:a",
        2,
        RetryPolicy(max_attempts=2, base=7),
        times,
        {"a": "b"},
    )
    await flow.service.put_schedule(
        s.PutSchedule(s.ScheduleOptions(schedule_id="s", task=template, interval=60), identity="me")
    )
    at(flow, "2026-01-01T00:01:00+00:00")
    await flow.drive.ring()
    [task] = (await flow.service.find(m.Find(queue="reports"))).tasks
    view = await flow.service.get(m.Get(task.task_id))
    assert (view.type, view.queue, view.app, view.priority, view.fairness_key) == (
        "t",
        "reports",
        "billing",
        1,
        "tenant",
    )
    assert (view.retry, view.max_attempts, view.identity) == (RetryPolicy(max_attempts=2, base=7), 2, "me")
    assert (view.concurrency_key, view.weight) == ("printer:a", 2)
    assert view.timeouts.start_to_close == 600
    assert view.timeouts.lease == 60
    assert view.payload == payload("[1, 2]")
    assert view.expires_at == view.created_at + timedelta(seconds=30)
    assert view.deadline == view.created_at + timedelta(seconds=7200)
    assert view.idempotency_key == "s/2026-01-01T00:01:00Z"
    [leased] = await flow.drive.poll(1, "reports")
    sent = await flow.drive.read(leased.id)
    assert b"a" in (sent.headers or b"")
    shown = (await flow.view()).task
    assert shown is not None
    assert (shown.queue, shown.retry, shown.headers) == ("reports", template.retry, {"a": "b"})
    assert shown.timeouts is not None
    assert (shown.timeouts.start_to_close, shown.timeouts.heartbeat) == (600.0, 5.0)


async def test_b057_one_run_on_the_day_after_the_clocks_went_back(flow: Flow) -> None:
    at(flow, "2026-10-24T00:00:00+00:00")
    await flow.put(cron="0 12 * * 1", timezone="Europe/Amsterdam")
    await flow.until("2026-10-27T00:00:00+00:00")
    assert flow.times == ["2026-10-26T11:00:00Z"]


async def test_b058_the_hour_is_right_on_the_day_of_the_change(flow: Flow) -> None:
    at(flow, "2026-03-07T00:00:00+00:00")
    await flow.put(cron="0 14 * * *", timezone="America/Los_Angeles")
    await flow.until("2026-03-10T00:00:00+00:00")
    assert flow.times == ["2026-03-07T22:00:00Z", "2026-03-08T21:00:00Z", "2026-03-09T21:00:00Z"]


async def test_b059_every_real_hour_has_its_run(flow: Flow) -> None:
    """25 of them on the day on which the clocks go back, whichever way the hours are written."""
    at(flow, "2026-11-01T06:59:00+00:00")
    await flow.put(cron="0 * * * *", timezone="US/Pacific")
    await flow.put("all", cron="0 0-23 * * *", timezone="US/Pacific")
    await flow.until("2026-11-02T07:59:00+00:00")
    by = Counter(ran.schedule for ran in flow.ran)
    assert by == {"s": 25, "all": 25}
    assert {"2026-11-01T08:00:00Z", "2026-11-01T09:00:00Z"} < set(flow.times)


async def test_b060_a_repeated_hour_stops_nothing(flow: Flow) -> None:
    """Paris, 2026-10-25, which has 25 hours."""
    at(flow, "2026-10-24T22:00:00+00:00")
    await flow.put("ten minutes", interval="10m")
    await flow.put("night", cron="20 2 * * *", timezone="Europe/Paris")
    await flow.until("2026-10-25T23:00:00+00:00")
    by = Counter(ran.schedule for ran in flow.ran)
    assert by == {"ten minutes": 150, "night": 1}
    assert [ran.at for ran in flow.ran if ran.schedule == "night"] == ["2026-10-25T00:20:00Z"]


GAP = {"cron": "30 2 * * *", "timezone": "America/New_York"}
OVERLAP = {"cron": "30 1 * * *", "timezone": "America/New_York"}


@pytest.mark.parametrize(
    ("timing", "start", "expected"),
    [
        (GAP, "2026-03-08T00:00:00-05:00", ["2026-03-08T07:00:00Z"]),
        ({**GAP, "gap": "after"}, "2026-03-08T00:00:00-05:00", ["2026-03-08T07:00:00Z"]),
        ({**GAP, "gap": "skip"}, "2026-03-08T00:00:00-05:00", []),
        (OVERLAP, "2026-11-01T00:00:00-04:00", ["2026-11-01T05:30:00Z"]),
        ({**OVERLAP, "repeated": "first"}, "2026-11-01T00:00:00-04:00", ["2026-11-01T05:30:00Z"]),
        ({**OVERLAP, "repeated": "second"}, "2026-11-01T00:00:00-04:00", ["2026-11-01T06:30:00Z"]),
        (
            {**OVERLAP, "repeated": "both"},
            "2026-11-01T00:00:00-04:00",
            ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"],
        ),
    ],
    ids=["gap", "gap-after", "gap-skip", "repeated", "repeated-first", "repeated-second", "repeated-both"],
)
async def test_b061_one_rule_for_gap_and_overlap(
    flow: Flow, timing: dict[str, Any], start: str, expected: list[str]
) -> None:
    """CRON-10. The preview says what fires, and a time that is skipped leaves a record."""
    at(flow, start)
    end = datetime.fromisoformat(start) + timedelta(hours=26)
    await flow.put(**timing)
    preview = await flow.service.preview_times(s.PreviewTimes(s.TimingOptions(**timing), 3))
    described = (await flow.view(times=3)).next_times
    await flow.until((end + timedelta(hours=3)).isoformat())
    planned = [rfc(one.at) for one in preview.times]
    assert planned == [rfc(one.at) for one in described]
    assert flow.times[: len(expected)] == expected
    assert flow.times == planned[: len(flow.times)]
    if not expected:
        skipped = [firing for firing in (await flow.view()).recent if firing.outcome == "gap"]
        assert [rfc(firing.scheduled_at) for firing in skipped] == ["2026-03-08T07:00:00Z"]


ZONES = (
    "Africa/Casablanca", "America/Asuncion", "America/Havana", "America/Los_Angeles", "America/New_York",
    "America/Nuuk", "America/Santiago", "America/St_Johns", "Antarctica/Troll", "Asia/Beirut", "Asia/Jerusalem",
    "Asia/Kathmandu", "Atlantic/Azores", "Australia/Adelaide", "Australia/Lord_Howe", "Europe/Berlin",
    "Europe/Dublin", "Europe/London", "Pacific/Chatham", "UTC",
)  # fmt: skip
EXPRESSIONS = (
    "* * * * *", "*/5 * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "15,45 * * * *", "0 */2 * * *", "0 */6 * * *",
    "0 0 * * *", "30 0 * * *", "0 1 * * *", "30 1 * * *", "0 2 * * *", "30 2 * * *", "59 2 * * *", "0 3 * * *",
    "15 3 * * *", "*/30 2 * * *", "*/20 1-3 * * *", "0 0-23 * * *", "0 12 * * MON", "0 0 1 * *", "0 0 L * *",
    "0 9 29 2 *", "0 0 * * 0", "0 0 13 * FRI", "@daily", "@hourly", "*/30 * * * * *", "30 30 2 * * *",
)  # fmt: skip


def _changes(name: str) -> list[int]:
    """Hours of 2026 and 2027 in which the clock of a zone jumps."""
    where, begin = zone(name), micros("2026-01-01T00:00:00+00:00")
    offsets = [clock(begin + hour * 3600 * SECOND, where).utcoffset() for hour in range(2 * 8766)]
    return [begin + hour * 3600 * SECOND for hour in range(1, len(offsets)) if offsets[hour] != offsets[hour - 1]]


@pytest.mark.parametrize("name", ZONES)
def test_b063_the_next_time_is_always_later_and_no_slow_question(name: str) -> None:
    """10,000 moments within three hours of a jump, each with one of 30 expressions and some policy. The time that is
    found is shown by the clock as the expression wants it, or is the end of a gap."""
    drawn = random.Random(name)
    where = zone(name)
    near = _changes(name) or [micros("2026-06-01T00:00:00+00:00")]
    slowest = 0.0
    for _ in range(500):
        expression = drawn.choice(EXPRESSIONS)
        timing = Timing(
            cron=expression, timezone=name, gap=drawn.choice(("", "after", "skip")),
            repeated=drawn.choice(("", "first", "second", "both")),
        )  # fmt: skip
        base = drawn.choice(near) + drawn.randrange(-3 * 3600 * SECOND, 3 * 3600 * SECOND)
        begun = time.process_time()
        found = next_after(timing, base)
        slowest = max(slowest, time.process_time() - begun)
        assert found is not None
        assert found > base
        shown = clock(found, where).replace(tzinfo=None, fold=0)
        if parse(expression).at_or_after(shown) != shown:
            before = clock(found - SECOND, where).replace(tzinfo=None, fold=0)
            assert timing.gap != "skip"
            assert shown - before > timedelta(minutes=1), "no match, and no gap ends there"
    assert slowest < 0.05


@pytest.mark.parametrize("name", ["America/New_York", "Australia/Lord_Howe", "Europe/Berlin"])
@pytest.mark.parametrize("expression", ["*/20 * * * *", "*/20 1-3 * * *", "30 2 * * *", "45 1 * * *"])
def test_b063_the_times_are_those_of_a_search_minute_by_minute(name: str, expression: str) -> None:
    """Two days around each jump, by the slow way: what does the clock show in each minute?"""
    where, cron = zone(name), parse(expression)
    for jump in _changes(name)[:4]:
        start, minutes = jump - 86_400 * SECOND, 2 * 24 * 60
        both: list[int] = []
        first: list[int] = []
        seen: set[datetime] = set()
        for minute in range(1, minutes):
            moment = start + minute * 60 * SECOND
            shown = clock(moment, where).replace(tzinfo=None, fold=0)
            if cron.at_or_after(shown) == shown:
                both.append(moment)
                if shown not in seen:
                    first.append(moment)
                seen.add(shown)
        for repeated, expected in (("both", both), ("first", first)):
            timing = Timing(cron=expression, timezone=name, gap="skip", repeated=repeated)
            found = upcoming(timing, start, len(expected) + 1)
            assert found[: len(expected)] == expected
            assert found[-1] >= start + minutes * 60 * SECOND


def test_b066_the_29th_of_february() -> None:
    timing = Timing(cron="0 9 29 2 *")
    assert rfc(next_after(timing, micros("2024-02-29T09:00:00+00:00")) or 0) == "2028-02-29T09:00:00Z"
    assert rfc(next_after(timing, micros("2096-03-01T00:00:00+00:00")) or 0) == "2104-02-29T09:00:00Z"
    for expression in EXPRESSIONS:
        for hour in range(24):
            now = micros("2028-02-29T00:00:00+00:00") + hour * 3600 * SECOND
            assert (next_after(Timing(cron=expression, timezone="Europe/Paris"), now) or 0) > now


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 2 29 2 0", "2028-01-01", ["02-06", "02-13", "02-20", "02-27", "02-29"]),
        ("0 0 1,15 * 1", "2027-01-01", ["01-04", "01-11", "01-15", "01-18", "01-25"]),
        ("0 0 * * 7", "2027-01-01", ["01-03", "01-10", "01-17"]),
        ("0 0 * * SUN", "2027-01-01", ["01-03", "01-10", "01-17"]),
        ("0 0 * * 0", "2027-01-01", ["01-03", "01-10", "01-17"]),
        ("0 0 */10 * 5", "2027-01-01", ["05-21", "06-11", "10-01"]),
    ],
)
def test_b067_either_of_two_day_fields(expression: str, start: str, expected: list[str]) -> None:
    """Either matches when both are set; both must when one begins with a star."""
    found = upcoming(Timing(cron=expression), micros(f"{start}T12:00:00+00:00"), 20)
    assert len(found) == 20
    assert [rfc(one)[5:10] for one in found[: len(expected)]] == expected


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
async def test_b068_impossible_dates_are_refused(flow: Flow, expression: str) -> None:
    with pytest.raises(InvalidArgument, match="Bad day-of-month") as refused:
        await flow.put(cron=expression)
    assert refused.value.field == "cron"
    assert (await flow.service.find_schedules(s.FindSchedules())).schedules == []


def test_b068_what_never_comes_by_calendar_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="calendar"):
        checked(s.TimingOptions(calendar=s.CalendarFields(day_of_month="31", month="2")))
    with pytest.raises(InvalidArgument, match="never fires") as refused:
        start, end = datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC)
        checked(s.TimingOptions(cron="0 0 13 * *", start_at=start, end_at=end))
    assert refused.value.field == "end_at"


def test_b069_short_months() -> None:
    assert between(Timing(cron="0 8 31 * *"), "2017-04-10T00:00:00+00:00", "2017-06-30T00:00:00+00:00") == [
        "2017-05-31T08:00:00Z"
    ]
    quarters = Timing(cron="0 0 30 3,6,9,12 *")
    assert rfc(next_after(quarters, micros("2027-02-01T00:00:00+00:00")) or 0) == "2027-03-30T00:00:00Z"


@pytest.mark.parametrize(
    ("timing", "field"),
    [
        ({"cron": ""}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "0 0 31W * *"}, "cron"),
        ({"cron": "0 0 ? * MON"}, "cron"),
        ({"cron": "0 22-2 * * *"}, "cron"),
        ({"cron": "60 * * * *"}, "cron"),
        ({"cron": "\uff15 * * * *"}, "cron"),
        ({"cron": "@every 5m"}, "cron"),
        ({"cron": "@reboot"}, "cron"),
        ({"cron": "* * * * * * *"}, "cron"),
        ({"cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"cron": "0 0 * * *", "timezone": ""}, "timezone"),
        ({"cron": "0 0 * * *", "timezone": "localtime"}, "timezone"),
        ({"cron": "0 0 * * *", "timezone": "../etc/passwd"}, "timezone"),
        ({"cron": "0 0 * * *", "timezone": "Europe"}, "timezone"),
        ({"cron": "0 0 * * *", "gap": "before"}, "gap"),
        ({"cron": "0 0 * * *", "interval": 5}, "interval"),
        ({"interval": 5, "repeated": "both"}, "repeated"),
        ({"interval": 0}, "interval"),
        ({"interval": "five minutes"}, "interval"),
        ({"calendar": s.CalendarFields(hour="25")}, "calendar.hour"),
        ({"calendar": s.CalendarFields(hour="1 2")}, "calendar.hour"),
        ({"cron": "0 0 * * *", "phase": 5}, "phase"),
        ({}, "cron"),
    ],
    ids=str,
)
async def test_b072_odd_timings_name_the_field(flow: Flow, timing: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await flow.put(**timing)
    assert refused.value.field == field
    assert refused.value.limit
    with pytest.raises(InvalidArgument) as refused:
        await flow.service.preview_times(s.PreviewTimes(s.TimingOptions(**timing)))
    assert refused.value.field == field


@pytest.mark.parametrize("expression", ["@daily", "0 0 L * *", "0 0 * * 5#3", "0\t0\t*\t*\t*", "0 0 0 * * *"])
async def test_b072_what_is_accepted_is_what_fires(flow: Flow, expression: str) -> None:
    await flow.put(cron=expression, timezone="EST5EDT")
    [planned] = (await flow.view(times=1)).next_times
    await flow.until("2026-02-28T00:00:00+00:00")
    assert flow.times[0] == rfc(planned.at)
    assert planned.local.endswith("T00:00:00-05:00")


async def test_b073_exact_counts_over_400_days(flow: Flow) -> None:
    """Daily, weekly, monthly, yearly; nobody looks only an hour ahead."""
    for name, expression in {"d": "0 7 * * *", "w": "0 7 * * MON", "m": "0 7 1 * *", "y": "0 7 1 7 *"}.items():
        await flow.put(name, cron=expression)
    await flow.until("2027-02-05T00:00:00+00:00")
    assert Counter(ran.schedule for ran in flow.ran) == {"d": 400, "w": 57, "m": 14, "y": 1}
    assert all(ran.at.endswith("T07:00:00Z") for ran in flow.ran)


@pytest.mark.parametrize(("policy", "count"), [("skip", 1), ("once", 1), ("all", 60)])
async def test_b074_what_a_suspension_missed(flow: Flow, policy: str, count: int) -> None:
    """CRON-06. Every ten seconds, and ten minutes of nothing. Each firing has its own nominal time."""
    at(flow, "2026-05-01T00:00:01+00:00")
    await flow.put(interval=10, misfire_policy=policy, overlap_policy="allow")
    flow.sleep(600)
    await flow.ring()
    caught_up = flow.times
    assert len(caught_up) == count
    assert caught_up[-1] == "2026-05-01T00:10:00Z"
    assert len(set(caught_up)) == count
    await flow.until("2026-05-01T00:11:00+00:00")
    assert flow.times[count:] == [f"2026-05-01T00:10:{n}Z" for n in (10, 20, 30, 40, 50)] + ["2026-05-01T00:11:00Z"]
    counts = (await flow.view()).counts
    assert counts["started"] + counts.get("missed", 0) == 60 + 6


async def test_b074_what_is_too_late_is_skipped(flow: Flow) -> None:
    """The last one is an hour ago, and nobody wants it any more."""
    await flow.put(cron="0 6 * * *", misfire_policy="skip")
    flow.sleep(7 * 3600)
    await flow.until("2026-01-02T07:00:00+00:00")
    assert flow.times == ["2026-01-02T06:00:00Z"]
    recent = (await flow.view()).recent
    assert [(firing.outcome, rfc(firing.scheduled_at)) for firing in recent[1:]] == [("missed", "2026-01-01T06:00:00Z")]


async def test_b074_all_of_a_long_outage_come_a_portion_a_second(flow: Flow) -> None:
    """Bounded in rate and in number: what is more than a day ago is counted and dropped."""
    await flow.put(interval=60, misfire_policy="all", overlap_policy="allow")
    flow.sleep(2 * 86_400)
    await flow.ring()
    assert len(flow.times) == 60
    assert flow.times[0] == "2026-01-02T00:00:00Z"
    await flow.until("2026-01-03T00:00:40+00:00")
    assert len(flow.times) == 1441
    assert flow.times == sorted(set(flow.times))
    assert (await flow.view()).counts["missed"] == 1000  # of 1439: the rest of a long outage is not counted


async def test_b074_a_year_of_seconds_is_no_work(flow: Flow) -> None:
    await flow.put(cron="* * * * * *")
    flow.sleep(365 * 86_400)
    begun = time.process_time()
    await flow.ring()
    assert time.process_time() - begun < 5
    assert flow.times == ["2027-01-01T00:00:00Z"]
    assert (await flow.view()).counts["missed"] == 1000


@pytest.mark.parametrize("kind", CONCURRENT)
async def test_b076_sixty_days_sixty_runs(
    kind: str,
    clock: SteppedClock,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Three servers, all of which ring at once; each is restarted within two minutes of the time; nothing that closed
    is kept for as long as a day."""
    drawn = random.Random(76)
    async with opened(make_store(kind, clock, tmp_path, request)) as store:
        engines = [await _started(store) for _ in range(3)]
        try:
            flow = Flow(Drive(engines[0]), clock, "2026-01-01T00:00:00+00:00")
            await flow.put(cron="30 4 * * *", timezone="Europe/Berlin")
            for day in range(60):
                at(flow, (datetime(2026, 1, 1, 3, 29, tzinfo=UTC) + timedelta(days=day)).isoformat())
                for _ in range(4):
                    number = drawn.randrange(3)
                    await engines[number].stop()
                    engines[number] = await _started(store)
                    flow.drive.engine = engines[0]
                    clock.advance(30)
                    await asyncio.gather(*(engine.apply([c.Ring(limit=100)]) for engine in engines))
                await flow.work()
                await engines[0].apply([c.Trim(closed_before=clock.now() - 3600 * SECOND, limit=100)])
        finally:
            for engine in engines:
                await engine.stop()
        assert len(flow.times) == 60
        assert len(set(flow.times)) == 60


async def _started(store: Store) -> Engine:
    engine = Engine(store)
    await engine.start(services=False)
    return engine


async def test_b077_the_same_schedule_from_many_processes_at_once(url: str) -> None:
    """IDEM-12. One is made, and making it again changes nothing; another one of the id is a conflict."""
    async with AsyncPerdure(url) as one, AsyncPerdure(url) as other:
        apps = [one, other] * 10
        made = await asyncio.gather(*(app.create_schedule("b077", task="t", interval=1) for app in apps))
        assert Counter(handle.did for handle in made) == {"created": 1, "unchanged": 19}
        before = await one.get_schedule_handle("b077").describe()
        again = await asyncio.gather(*(app.put_schedule("b077", task="t", interval=1) for app in apps))
        assert {handle.did for handle in again} == {"unchanged"}
        after = await one.get_schedule_handle("b077").describe()
        assert after.created_at == before.created_at
        assert len((await one.list_schedules()).schedules) == 1
        with pytest.raises(Conflict):
            await one.create_schedule("b077", task="t", interval=2)


async def test_b077_the_phase_is_not_started_again(flow: Flow) -> None:
    at(flow, "2026-02-01T00:00:00.5+00:00")
    for _ in range(3):
        await flow.put(interval=10, replace=True)
        flow.clock.advance(3)
    await flow.until("2026-02-01T00:00:30+00:00")
    assert flow.times == [f"2026-02-01T00:00:{n}Z" for n in (10, 20, 30)]


async def test_b078_an_update_holds_for_the_next_run(flow: Flow) -> None:
    """Payload, then cron, then zone, then paused: each in one write, and the old run is gone."""
    await flow.put(body='"old"', cron="0 6 * * *")
    assert await flow.put(body='"new"', cron="0 6 * * *", replace=True) == "updated"
    await flow.until("2026-01-01T07:00:00+00:00")
    await flow.put(body='"new"', cron="0 8 * * *", replace=True)
    await flow.until("2026-01-02T07:00:00+00:00")
    await flow.put(body='"new"', cron="0 8 * * *", timezone="Asia/Tokyo", replace=True)
    await flow.until("2026-01-03T00:00:00+00:00")
    assert [(ran.at, ran.body) for ran in flow.ran] == [
        ("2026-01-01T06:00:00Z", '"new"'),
        ("2026-01-01T08:00:00Z", '"new"'),
        ("2026-01-02T23:00:00Z", '"new"'),
    ]
    await flow.pause()
    await flow.until("2026-01-05T12:00:00+00:00")
    assert len(flow.ran) == 3
    await flow.pause(paused=False)
    await flow.until("2026-01-06T00:00:00+00:00")
    assert flow.times[3:] == ["2026-01-05T23:00:00Z"]


async def test_b078_an_overdue_run_is_by_the_new_values(flow: Flow) -> None:
    """The time has passed, nobody has rung the alarm yet, and the payload changes: not the old one, and not none."""
    await flow.put(body='"old"', cron="0 6 * * *")
    flow.sleep(6 * 3600 + 5)
    await flow.put(body='"new"', cron="0 6 * * *", replace=True)
    await flow.ring()
    assert [(ran.at, ran.body) for ran in flow.ran] == [("2026-01-01T06:00:00Z", '"new"')]


@pytest.mark.parametrize("end", ["pause", "delete"])
@pytest.mark.parametrize("point", range(8))
async def test_b079_nothing_fires_once_pause_has_returned(end: str, point: int) -> None:
    """The alarm stops at each of its statements in turn, and meanwhile somebody pauses or deletes the schedule."""
    steps = SteppedClock()
    gate, waiting, passed = asyncio.Event(), asyncio.Event(), 0
    armed = False

    async def switch() -> None:
        nonlocal passed, armed
        if armed:
            passed += 1
            if passed == point + 1:
                armed = False
                waiting.set()
                await gate.wait()
        else:
            await asyncio.sleep(0)

    store = MemoryStore(clock=steps.now, switch=switch)
    one, other = await _started(store), await _started(store)
    try:
        flow = Flow(Drive(one), steps, "2026-01-01T00:00:00+00:00")
        await flow.put(interval=60)
        flow.clock.advance(60)
        armed = True
        ringing = asyncio.create_task(one.apply([c.Ring(limit=100)]))
        stopped = asyncio.create_task(waiting.wait())
        await asyncio.wait((ringing, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        command: c.ScheduleCommand = (
            c.PauseSchedule(namespace="default", schedule_id="s", paused=True)
            if end == "pause"
            else c.DeleteSchedule(namespace="default", schedule_id="s")
        )
        ending = asyncio.create_task(other.apply([command]))
        await asyncio.wait((ending,), timeout=0.2)  # it may have to wait for the alarm's locks
        ended_first = ending.done()
        gate.set()
        armed = False
        await asyncio.wait_for(asyncio.gather(ringing, ending), 10)
        await flow.work()
        before = len(flow.ran)
        assert before <= 1
        assert not (ended_first and before), "it fired after the pause had returned"
        flow.clock.advance(3600)
        await flow.ring()
        assert len(flow.ran) == before
        if end == "delete":
            with pytest.raises(NotFound):
                await flow.view()
    finally:
        await one.stop()
        await other.stop()


@pytest.mark.parametrize(
    ("policy", "minutes", "outcomes"),
    [
        ("allow", [1, 2, 3, 4, 5, 6], {"started": 6}),
        ("skip", [1, 4], {"started": 2, "overlap": 4}),
        ("buffer_one", [1, 2, 4], {"started": 3, "buffered": 2, "overlap": 3}),
    ],
)
async def test_b080_overlap(flow: Flow, policy: str, minutes: list[int], outcomes: dict[str, int]) -> None:
    """CRON-05. Every minute, and each run takes 150 s."""
    flow.lasts = 150
    await flow.put(interval=60, overlap_policy=policy)
    await flow.until("2026-01-01T00:06:30+00:00")
    assert flow.times == [f"2026-01-01T00:0{n}:00Z" for n in minutes]
    view = await flow.view()
    assert view.counts == outcomes
    if policy == "skip":
        assert [firing.outcome for firing in view.recent[:2]] == ["overlap", "overlap"]


async def test_b080_cancel_previous(flow: Flow) -> None:
    """The one before is asked to cancel, and the next one starts once it has ended."""
    await flow.put(interval=60, overlap_policy="cancel_previous")
    flow.clock.advance(60)
    await flow.drive.ring()
    first = await flow.drive.lease()
    assert not await flow.drive.beat(first)
    flow.clock.advance(60)
    await flow.drive.ring()
    assert await flow.drive.beat(first)
    assert await flow.drive.poll(1) == []
    await flow.drive.complete(first, "canceled")
    flow.clock.advance(1)
    await flow.drive.ring()
    second = await flow.drive.lease()
    assert second.idempotency_key == "s/2026-01-01T00:02:00Z"
    assert (await flow.view()).counts == {"started": 2, "buffered": 1}


async def test_b080_a_job_that_is_tried_again_still_runs(flow: Flow) -> None:
    """Between two attempts, too: the next one is skipped, with a reason."""
    await flow.put(interval=60)
    flow.clock.advance(60)
    await flow.drive.ring()
    await flow.drive.fail(await flow.drive.lease(), retry_after=600 * SECOND)
    flow.clock.advance(60)
    await flow.drive.ring()
    assert (await flow.view()).recent[0].outcome == "overlap"


@pytest.fixture
def london() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/London"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("london")
async def test_b082_zones_of_process_and_database_do_not_matter(flow: Flow) -> None:
    """Both transitions of a year are crossed; all that is stored is in UTC."""
    await flow.put("night", cron="30 1 * * *", timezone="Europe/London")
    await flow.put("hours", interval="6h")
    for start, end in (("2026-03-28", "2026-03-30"), ("2026-10-24", "2026-10-26")):
        at(flow, f"{start}T12:00:00+00:00")
        await flow.ring()
        flow.ran.clear()
        await flow.until(f"{end}T12:00:00+00:00")
        nights = [ran.at[5:] for ran in flow.ran if ran.schedule == "night"]
        hours = [ran.at for ran in flow.ran if ran.schedule == "hours"]
        assert len(hours) == 8
        if start == "2026-03-28":
            assert nights == ["03-29T01:00:00Z", "03-30T00:30:00Z"]
        else:
            assert nights == ["10-25T00:30:00Z", "10-26T01:30:00Z"]


@pytest.fixture
async def quick() -> AsyncIterator[Flow]:
    steps = SteppedClock()
    async with opened(MemoryStore(clock=steps.now)) as ready:
        engine = await _started(ready)
        try:
            yield Flow(Drive(engine), steps, "2026-01-01T00:00:00+00:00")
        finally:
            await engine.stop()


@pytest.mark.parametrize("name", sorted({"Africa/Cairo", "America/Sao_Paulo", "Asia/Tehran", "Pacific/Apia"}))
async def test_zones_of_the_whole_world_run_once_a_day(quick: Flow, name: str) -> None:
    assert name in zoneinfo.available_timezones()
    await quick.put(cron="30 2 * * *", timezone=name)
    await quick.until("2027-01-01T00:00:00+00:00")
    assert len({clock(micros(one.replace("Z", "+00:00")), zone(name)).date() for one in quick.times}) == 365


async def test_b077_processes(tmp_path: Path) -> None:
    """Eight processes put the same schedule at the same time."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    await migrate(url)
    code = (
        "import sys\nfrom perdure import Perdure\n"
        "with Perdure(sys.argv[1]) as app:\n"
        "    print(app.create_schedule('one', task='t', interval=1).did)\n"
    )
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(8)
    ]
    answers = await asyncio.gather(*(process.communicate() for process in processes))
    said = Counter(out.decode().strip() for out, _ in answers)
    assert said == {"created": 1, "unchanged": 7}, [err.decode() for _, err in answers]
