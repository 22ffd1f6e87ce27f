"""Pages come back as they were packed; large ones are compressed, and the data say so themselves."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import pages
from perdure.core.events import Event, MarkerRecorded, StepStarted, TimerFired, TimerStarted, pack_events
from perdure.core.model import Payload, Payloads
from tests.clock import START

RUN = bytes(range(16))
FRAME = b"\x28\xb5\x2f\xfd"
"""How compressed data begin (RFC 8878)."""


def marker(number: int, data: bytes) -> Event:
    details: dict[str, Payloads] = {"value": (Payload({"encoding": "binary/plain"}, data),)}
    return Event(number, START + number, MarkerRecorded(marker_name="version", details=details))


def of_size(size: int) -> list[Event]:
    """One event that packs to exactly so many bytes."""
    whole = len(pack_events([marker(1, bytes(size))]))
    events = [marker(1, bytes(size - (whole - size)))]
    assert len(pack_events(events)) == size
    return events


def test_a_page_says_which_events_it_holds() -> None:
    events = [Event(7, START, TimerStarted(timer_id="t", start_to_fire=1.0)), marker(8, b"x")]
    page = pages.pack(RUN, events)
    assert (page.run_id, page.first, page.count) == (RUN, 7, 2)
    assert pages.unpack(page.data) == events


@given(st.lists(st.binary(max_size=3_000), min_size=1, max_size=20), st.integers(1, 50_000))
def test_events_come_back(blobs: list[bytes], first: int) -> None:
    events = [marker(first + n, blob) for n, blob in enumerate(blobs)]
    assert pages.unpack(pages.pack(RUN, events).data) == events


@pytest.mark.parametrize(("size", "compressed"), [(1023, False), (1024, True), (1025, True)])
def test_pages_are_compressed_from_1_kib_on(size: int, compressed: bool) -> None:
    """DESIGN section 4."""
    events = of_size(size)
    data = pages.pack(RUN, events).data
    assert data.startswith(FRAME) is compressed
    assert (len(data) < 200) is compressed
    assert pages.unpack(data) == events


@pytest.mark.parametrize("count", [1, 15, 16, 65_536])
def test_plain_pages_are_never_taken_for_compressed_ones(count: int) -> None:
    """MessagePack has three ways to begin a list."""
    events = [Event(n, START, TimerFired(timer_id="", started_event_id=1)) for n in range(1, count + 1)]
    assert not pack_events(events).startswith(FRAME[:1])
    assert pages.unpack(pack_events(events)) == events


def test_what_cannot_be_made_smaller_comes_back_too() -> None:
    events = [marker(1, random.Random(1).randbytes(300_000))]
    assert pages.unpack(pages.pack(RUN, events).data) == events


def test_steps_too() -> None:
    events = [Event(n, START + n, StepStarted(name="charge", step_id=n)) for n in range(1, 200)]
    page = pages.pack(RUN, events)
    assert len(page.data) * 4 < len(pack_events(events))
    assert pages.unpack(page.data) == events
