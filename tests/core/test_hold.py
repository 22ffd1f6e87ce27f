"""The hold after an outage: whose lease it covers."""

from __future__ import annotations

from random import Random

from perdure.core import decide
from perdure.core.effects import Record
from perdure.core.ids import Mint
from perdure.core.model import Timeouts
from perdure.core.rounds import Rounds
from perdure.core.states import State
from tests.clock import START
from tests.engine.drive import LANE, enqueue


def test_a_hold_covers_leases_whose_receipt_is_not_known_yet() -> None:
    """After an outage the acknowledgement may be on its way: the worker's silence does not count (DESIGN 3)."""
    mint, rounds = Mint(Random(1)), Rounds()
    rounds.learn(LANE, 0, 0)
    command = enqueue(timeouts=Timeouts(heartbeat=5))
    command.task_id = mint.task_id(0)
    leased = decide.claim(decide.enqueue(command, START, rounds).task, 1, "w", 1, START, mint.lease_bits()).task
    later = START + 6_000_000
    held = decide.ring(leased, later, mint, rounds, later + 1)[-1]
    assert not isinstance(held, Record)
    assert (held.task.state, held.task.lease) == (State.LEASED, leased.lease)
    ended = decide.ring(leased, later, mint, rounds, later)[-1]
    assert not isinstance(ended, Record)
    assert (ended.task.state, ended.task.attempt) == (State.ENQUEUED, 0)
