"""Readers that wait, and whoever wakes them."""

from __future__ import annotations

import asyncio

from perdure.engine.news import News


async def test_readers_are_told_and_forgotten() -> None:
    news = News()
    assert not news
    with news.expect("a") as first, news.expect("a") as second, news.expect("b") as other:
        news.tell(["a", "unknown"])
        assert (first.is_set(), second.is_set(), other.is_set()) == (True, True, False)
        news.tell_all()
        assert other.is_set()
    assert not news, "nothing is kept of those who left"


async def test_what_comes_between_the_look_and_the_wait_is_heard() -> None:
    news = News()
    with news.expect("a") as waiting:
        news.tell(["a"])
        async with asyncio.timeout(10):
            await waiting.wait()
