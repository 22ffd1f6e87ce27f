"""What a poll for turns may cost: the answer is bounded, whatever the runs have behind them."""

from __future__ import annotations

from random import Random

from perdure.api.service import Caller, Service
from perdure.api.turns import MAX_REPLY_BYTES
from perdure.client.embedded import EmbeddedService
from perdure.core import workflow_messages as w
from perdure.engine.engine import Engine
from tests.api.calls import payload
from tests.api.turns import Hand, names, seen

LARGE = 250_000
RUNS = 2 * MAX_REPLY_BYTES // LARGE


async def test_many_long_histories_do_not_make_one_huge_answer(engine: Engine) -> None:
    """A worker with many slots takes over the runs of another that is gone; what is left out it asks for."""
    service = EmbeddedService(Service(engine, Caller("default")))
    random = Random(1)
    for number in range(RUNS):
        given = payload(random.randbytes(LARGE))
        await service.start_workflow(w.StartWorkflow("fulfil", f"w{number}", given))
    deliveries = await Hand(service).poll(capacity=RUNS)
    turns = [delivery.turn for delivery in deliveries if delivery.turn is not None]
    assert len(turns) == RUNS
    size = sum(len(page) for turn in turns for page in turn.pages)
    assert MAX_REPLY_BYTES * 0.8 < size < MAX_REPLY_BYTES * 1.2
    assert 0 < sum(turn.more for turn in turns) < RUNS
    short = next(turn for turn in turns if turn.more)
    rest = await service.history(w.History(short.workflow_id, short.run_id))
    assert len(rest.pages) == 1
    assert names(seen(deliveries[turns.index(short)]))[-1] == "WorkflowTaskStarted"
