"""A cursor that is polled: a partner shows the day's deliveries page by page, as they happen, and each is booked once.

The cursor is the workflow's own variable; it goes along when the run continues as new.
"""

from __future__ import annotations

from dataclasses import dataclass

from outside import effect

from perdure import Perdure, WorkflowContext, workflow

POLLS_PER_RUN = 5
DELIVERIES = [f"parcel-{number}" for number in range(1, 18)]
PAGE = 2


@dataclass
class Feed:
    """A day's feed, and how far it is read. The id is that of the workflow."""

    id: str
    pause: str = "1m"
    cursor: int = 0


@dataclass
class Page:
    """An answer of the partner."""

    deliveries: list[str]
    cursor: int
    day_is_over: bool


@workflow
async def poll_deliveries(ctx: WorkflowContext, feed: Feed) -> int:
    for _ in range(POLLS_PER_RUN):
        page = await ctx.step("fetch", fetch, feed.cursor)
        await ctx.parallel("book", [(book, feed.id, delivery) for delivery in page.deliveries])
        feed.cursor = page.cursor
        if page.day_is_over:
            return feed.cursor
        await ctx.sleep("between polls", feed.pause)
    return ctx.continue_as_new(feed)


def fetch(cursor: int) -> Page:
    """The partner, which happens to be here. It only reads, so it leaves no effect."""
    deliveries = DELIVERIES[cursor : cursor + PAGE]
    end = cursor + len(deliveries)
    return Page(deliveries, end, end == len(DELIVERIES))


def book(feed_id: str, delivery: str) -> None:
    effect(feed_id, "book", delivery)


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        feed = Feed("deliveries-1", pause="20ms")
        print("booked", app.execute_workflow(poll_deliveries, feed, id=feed.id, timeout=30))


if __name__ == "__main__":
    main()
