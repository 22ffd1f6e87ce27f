"""What requests weigh in a batch (DESIGN section 3: 4 MB)."""

from __future__ import annotations

import asyncio

from perdure.api import drafts
from perdure.core import messages as m
from perdure.core.ids import lease_token
from perdure.core.model import Lease, Payload, Progress
from perdure.engine.gather import MAX_BYTES, Gatherer

LEASE = lease_token(Lease(bytes(16), 1, 1))


def blob(size: int) -> tuple[Payload, ...]:
    return (Payload({}, bytes(size)),)


def test_all_that_is_stored_counts() -> None:
    beat = drafts.heartbeat(m.Beat(LEASE, Progress(1, 2, "x" * 1_000), blob(2_000)))
    assert beat.progress is not None and beat.checkpoint is not None
    assert beat.size == len(beat.progress) + len(beat.checkpoint) > 3_000
    item = m.Completion(LEASE, "succeeded", result=blob(4_000), progress=Progress(1, 2, "x"), checkpoint=blob(2_000))
    done = drafts.completion(item)
    assert done.result is not None and done.progress is not None and done.checkpoint is not None
    assert done.size == len(done.result) + len(done.progress) + len(done.checkpoint) > 6_000
    assert drafts.heartbeat(m.Beat(LEASE)).size == 0


async def test_a_batch_holds_few_large_checkpoints() -> None:
    """400 of the largest would be 100 MB."""
    beat = drafts.heartbeat(m.Beat(LEASE, None, blob(200_000)))
    done = drafts.completion(m.Completion(LEASE, "succeeded", checkpoint=blob(200_000)))
    gatherer = Gatherer()
    gatherer.put([beat, done] * 200, asyncio.get_running_loop().create_future())
    assert sum(len(item.command.checkpoint) for item in gatherer.take()) <= MAX_BYTES + 200_100
