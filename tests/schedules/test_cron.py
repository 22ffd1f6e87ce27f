"""Cron expressions: what is accepted, what is refused and why, and which times match."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import pytest

from perdure.core import cron
from perdure.core.calendar import next_after
from perdure.core.cron import check_cron, parse
from perdure.core.errors import InvalidArgument
from tests.schedules.flow import micros, rfc


def times(expression: str, after: str, count: int) -> list[str]:
    found = []
    local: datetime | None = datetime.fromisoformat(after)
    for _ in range(count):
        assert local is not None
        local = parse(expression).after(local)
        found.append("" if local is None else local.isoformat(" ", "minutes"))
    return found


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 L * *", "2027-01-15", ["2027-01-31 00:00", "2027-02-28 00:00"]),
        ("0 0 LW * *", "2027-01-15", ["2027-01-29 00:00", "2027-02-26 00:00"]),
        ("0 0 * * 5#3", "2027-01-01", ["2027-01-15 00:00", "2027-02-19 00:00"]),
        ("0 0 * * 5L", "2027-01-01", ["2027-01-29 00:00", "2027-02-26 00:00"]),
        ("@daily", "2027-01-15", ["2027-01-16 00:00", "2027-01-17 00:00"]),
        ("@hourly", "2027-01-15", ["2027-01-15 01:00", "2027-01-15 02:00"]),
        ("0 9 * JAN MON", "2027-01-15", ["2027-01-18 09:00", "2027-01-25 09:00"]),
        ("30\t4  1,15 * 5", "2027-01-13", ["2027-01-15 04:30", "2027-01-22 04:30"]),
        ("5/20 * * * *", "2027-01-15", ["2027-01-15 00:05", "2027-01-15 00:25"]),
    ],
)
def test_expressions_mean_what_the_page_says(expression: str, after: str, expected: list[str]) -> None:
    """CRON-01."""
    assert times(check_cron(expression, "cron"), after, len(expected)) == expected


def test_six_fields_have_seconds_first() -> None:
    local = datetime(2027, 1, 15)
    sim = parse("*/20 0 * * * *")
    found = []
    for _ in range(3):
        after = sim.after(local)
        assert after is not None
        local = after
        found.append(local.time().isoformat())
    assert found == ["00:00:20", "00:00:40", "01:00:00"]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "Wrong number of fields"),
        ("* * * *", "Wrong number of fields"),
        ("* * * * * * *", "Wrong number of fields"),
        ("60 * * * *", "Bad minute"),
        ("0 22-2 * * *", "Bad hour"),
        ("0 0 31W * *", "Bad day-of-month"),
        ("0 0 ? * MON", "Bad day-of-month"),
        ("0 0 30 2 *", "Bad day-of-month"),
        ("0 0 31 4,6,9,11 *", "Bad day-of-month"),
        ("0 0 L/2 * *", "Bad day-of-month"),
        ("*/90 * * * *", "a step of 90 is longer"),
        ("0 0 * * 8", "Bad day-of-week"),
        ("0 0 * 13 *", "Bad month"),
        ("\uff15 * * * *", "characters that no field can have"),
        ("0 0 * * \u017fun", "characters that no field can have"),
        ("@reboot", "nothing here reboots"),
        ("@every 5m", 'give interval="5m"'),
        ("@fortnightly", "no such nickname"),
        ("CRON_TZ=UTC 0 0 * * *", "Bad second"),
        ("1" * 300, "characters"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_reason(expression: str, why: str) -> None:
    """B068, B072: never another schedule than was asked for."""
    with pytest.raises(InvalidArgument, match="cron") as refused:
        check_cron(expression, "cron")
    assert why in refused.value.detail
    assert refused.value.field == "cron"
    assert refused.value.kind == "str"
    assert refused.value.limit


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_cron(5, "cron")  # type: ignore[arg-type]
    assert refused.value.kind == "int"


def test_workflows_with_seconds_are_not_held_up_by_the_minute() -> None:
    """Answers are kept by the second, so two questions within one minute have two answers."""
    begin = micros("2027-01-15T00:00:00+00:00")
    found = [cron.next_after("*/20 * * * * *", begin + n * 1_000_000) for n in (0, 19, 20, 41)]
    assert [rfc(at or 0)[-6:] for at in found] == [":00:20"[1:] + "Z", "00:20Z"[0:], "00:40Z", "01:00Z"]


def test_calendars_match_all_fields() -> None:
    """The 13th and a Friday, where cron would take either."""
    from perdure.core.calendar import Timing

    both = Timing(calendar="0 0 12 13 * FRI")
    found = []
    at: int | None = micros("2026-01-01T00:00:00+00:00")
    for _ in islice(range(10), 3):
        assert at is not None
        at = next_after(both, at)
        found.append(rfc(at or 0))
    assert found == ["2026-02-13T12:00:00Z", "2026-03-13T12:00:00Z", "2026-11-13T12:00:00Z"]
