"""What the reference store keeps of events, and who they are sent to."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.outbox import Cursor, Feed, OutboxEvent
from perdure.core.webhooks import DeadLetter, Webhook


class Outbox:
    """Committed events, in the order of their commits."""

    def __init__(self) -> None:
        self.events: list[OutboxEvent] = []
        self.feeds: dict[str, Feed] = {}
        self.webhooks: dict[str, Webhook] = {}
        self.letters: dict[tuple[str, int, int], DeadLetter] = {}
        self._last = 0

    def add(self, events: Sequence[OutboxEvent]) -> None:
        """A batch commits them: they get the next numbers."""
        for event in events:
            self._last += 1
            event.seq = self._last
            self.events.append(event)

    def trim(self, before: int, limit: int) -> int:
        """See base.Batch.trim_events."""
        old = [event for event in self.events[:limit] if event.at < before]
        for event in old:
            self.events.remove(event)
            feed = self.feeds.get(event.namespace, Feed())
            trimmed = max(feed.trimmed, Cursor(event.xid, event.seq))
            self.feeds[event.namespace] = Feed(feed.recording, trimmed)
        return len(old)
