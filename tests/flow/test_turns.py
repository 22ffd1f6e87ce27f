"""Batches of one server count one after the other: what one of them holds, the other one could hand nothing out of
(QUOTA-12)."""

from __future__ import annotations

import asyncio

import pytest

from perdure.core.rounds import Rounds
from perdure.engine import flow
from perdure.engine.flow import Flow, Known
from perdure.engine.ledger import Ledger


async def test_a_batch_waits_until_the_one_that_counts_is_over() -> None:
    known = Known(Rounds())
    first, second = Flow(Ledger(), known), Flow(Ledger(), known)
    await first._take_turn()
    waiting = asyncio.create_task(second._take_turn())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.over()
    first.over()
    await waiting
    assert known.turn.locked()
    second.over()
    assert not known.turn.locked()


async def test_it_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that counts may be waiting for a row of this one."""
    monkeypatch.setattr(flow, "LONGEST_TURN", 0.01)
    known = Known(Rounds())
    first, second = Flow(Ledger(), known), Flow(Ledger(), known)
    await first._take_turn()
    await second._take_turn()
    second.over()
    assert known.turn.locked()
    first.over()
    assert not known.turn.locked()
