"""Reads the inboxes of runs whose turns are looked at: all of a small one, of a large one what a turn is shown."""

from __future__ import annotations

from collections.abc import Container, Iterable

from perdure.core.run import Message, Run
from perdure.core.turns import last_read
from perdure.store.base import Batch as Rows

MOST_BYTES = 16 * 1024 * 1024
"""Of an inbox that are read at once; the rest comes with later turns."""
FEW = 64
"""Messages that are read whatever their size: so many of the largest have about as many bytes."""


async def read(rows: Rows, runs: Iterable[Run], whole: Container[bytes]) -> dict[bytes, list[Message]]:
    """What no turn has taken yet, by run. Those of `whole` are read to their end."""
    small: dict[bytes, int] = {}
    large: dict[bytes, Run] = {}
    for run in runs:
        waiting = run.inbox_count - run.inbox_taken
        if waiting > FEW and run.id not in whole:
            large[run.id] = run
        elif waiting:
            small[run.id] = run.inbox_taken
    found: dict[bytes, list[Message]] = {}
    if large:
        found = await rows.inbox({i: run.inbox_taken for i, run in large.items()}, MOST_BYTES)
        # A turn that was put off, or is in hand since one was, is shown all there was.
        short = [run for i, run in large.items() if last_read(run, found.get(i, ())) < run.turn_inbox]
        small |= {run.id: run.inbox_taken for run in short}
    if small:
        found |= await rows.inbox(small)
    return found
