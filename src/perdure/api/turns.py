"""Turns of workflow runs, as the workers that got them see them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.api.reading import reading
from perdure.core import messages as m
from perdure.core import pages
from perdure.core import workflow_messages as w
from perdure.core.ids import parse, text
from perdure.core.run import Page, Run, UpdateRequest
from perdure.engine.dispatch import PollRequest
from perdure.engine.engine import Engine

PAGES = 200
"""Of a history that go along with a turn; the worker asks for the rest."""
MAX_BYTES = 1024 * 1024
"""Of a history that go along with a turn."""
MAX_REPLY_BYTES = 8 * 1024 * 1024
"""Of all histories that go along with one answer."""
_AT_ONCE = 20  #: histories that are read in one statement


def turn_view(
    run: Run, history: Sequence[Page], prepared: Page, updates: Sequence[UpdateRequest], more: bool
) -> w.Turn:
    """`history` are the pages that the worker has not seen, from the first one to where `more` is left out; `prepared`
    the events that this turn begins with."""
    sent = [*history, prepared]
    return w.Turn(
        workflow_id=run.workflow_id,
        run_id=text(run.id),
        first=sent[0].first,
        pages=[page.data for page in sent],
        started_event_id=prepared.first + prepared.count - 1,
        updates=list(updates),
        more=more,
    )


async def with_turns(engine: Engine, request: PollRequest, found: list[m.Delivery]) -> list[m.Delivery]:
    """The deliveries that answer a poll, those of workflow runs with what their code is to see. A worker that had the
    run last has it in memory, so it gets the new events only; any other one the history too, from its start."""
    turns = request.turns
    written = {run_id: [turn.history] for run_id, turn in turns.items() if turn.history is not None}
    strange = {i for i, t in turns.items() if i not in written and t.run.sticky_session != request.incarnation}
    histories = await _histories(engine, sorted(strange)) | written
    complete: list[m.Delivery] = []
    for delivery in found:
        turn = turns.get(parse(delivery.task_id))
        if turn is None:
            complete.append(delivery)
            continue
        sent = histories.get(turn.run.id, [])
        more = turn.run.id in strange and sum(page.count for page in sent) < turn.run.event_count
        view = turn_view(turn.run, sent, pages.pack(turn.run.id, turn.events), turn.updates, more)
        complete.append(replace(delivery, turn=view))
    return complete


async def _histories(engine: Engine, run_ids: Sequence[bytes]) -> dict[bytes, list[Page]]:
    """The first pages of these runs, as many as may go along; of the last runs none, if they are many."""
    found: dict[bytes, list[Page]] = {}
    left = MAX_REPLY_BYTES
    for start in range(0, len(run_ids), _AT_ONCE):
        if left <= 0:
            break
        with reading():
            read = await engine.store.histories(dict.fromkeys(run_ids[start : start + _AT_ONCE], 0), PAGES, MAX_BYTES)
        for run_id, history in read.items():
            found[run_id] = _within(history, min(left, MAX_BYTES))
            left -= sum(len(page.data) for page in found[run_id])
    return found


def _within(history: Sequence[Page], most: int) -> list[Page]:
    """The first pages, of so many bytes together."""
    sent: list[Page] = []
    for page in history:
        most -= len(page.data)
        if most < 0:
            break
        sent.append(page)
    return sent
