"""Wakes those who read what grows: the events of a namespace, the stream of a task.

News decide nothing and may be lost: a reader looks for itself, and again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class News:
    """Readers of this server that wait, by what they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[object, dict[asyncio.Event, None]] = {}  #: in the order in which they came

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def tell(self, keys: Iterable[object]) -> None:
        """There may be more of these."""
        for key in keys:
            for waiting in self._waiting.get(key, ()):
                waiting.set()

    def tell_all(self) -> None:
        self.tell(list(self._waiting))

    @contextmanager
    def expect(self, key: object) -> Iterator[asyncio.Event]:
        """Set by the next news of `key`. To be entered before the look, so that nothing comes between."""
        news = asyncio.Event()
        self._waiting.setdefault(key, {})[news] = None
        try:
            yield news
        finally:
            waiting = self._waiting[key]
            del waiting[news]
            if not waiting:
                del self._waiting[key]
