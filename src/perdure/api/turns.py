"""Turns of workflow runs, as the workers that got them see them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.ids import text
from perdure.core.model import Task
from perdure.core.run import Page, Run, UpdateRequest
from perdure.engine.engine import Engine


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


async def with_turns(engine: Engine, tasks: Sequence[Task], found: list[m.Delivery]) -> list[m.Delivery]:
    """The deliveries, those of workflow runs with what their code is to see."""
    return found
