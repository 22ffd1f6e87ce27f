"""Worker processes that wait to hear which of their leases need a heartbeat now, because the answer has changed.

A nudge is a hint: it says nothing by itself and may be lost; the heartbeat is what tells the worker that its task is to
be canceled, and the next one would come within seconds anyway (CANC-02). What comes between two waits of a process is
kept for the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class Nudges:
    """By incarnation of the worker process."""

    def __init__(self) -> None:
        self._open: dict[int, set[bytes]] = {}  #: of processes that wait, or did before
        self._waiting: dict[int, asyncio.Event] = {}

    async def wait(self, incarnation: int, seconds: float) -> list[bytes]:
        """Ids of tasks whose lease should be beaten at once; none after `seconds`. The last to wait is the one who
        hears."""
        told = self._open.setdefault(incarnation, set())
        if not told:
            heard = self._waiting[incarnation] = asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await heard.wait()
            except TimeoutError:
                return []
            except asyncio.CancelledError:
                self.forget(incarnation)
                raise
            finally:
                if self._waiting.get(incarnation) is heard:
                    del self._waiting[incarnation]
        ids = sorted(told)
        told.clear()
        return ids

    def tell(self, nudges: Iterable[tuple[int, bytes]]) -> None:
        """Something was decided about these leases. Processes that never waited here are somewhere else."""
        for incarnation, task_id in nudges:
            if (told := self._open.get(incarnation)) is not None:
                told.add(task_id)
                if (heard := self._waiting.get(incarnation)) is not None:
                    heard.set()

    def forget(self, incarnation: int) -> None:
        """This process is gone, or waits elsewhere."""
        self._open.pop(incarnation, None)
