"""Of many requests that name one debounce key only the last is served: it takes the place of the one before, as long as
that has not begun."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core import decide, ids, keys
from perdure.core.effects import Effect, PassOn
from perdure.core.model import Key, Task
from perdure.core.rounds import Rounds
from perdure.core.states import State


def displace(
    command: c.Enqueue, holder: Key, old: Task | None, now: int, rounds: Rounds
) -> tuple[list[Effect], c.Enqueued]:
    """The new task, and the end of the one that held its key, if that waits for its first start."""
    effects: list[Effect] = []
    inserted = decide.enqueue(command, now, rounds)
    if old is not None and old.state == State.ENQUEUED and old.lease_number == 0:
        reason = f"debounced by {ids.text(inserted.task.id)}"
        effects += decide.cancel(old, c.Cancel(namespace=old.namespace, task_id=old.id, reason=reason), now)
    effects += [inserted, PassOn(holder, keys.reservation(command, now))]
    return effects, c.Enqueued(inserted.task.id, False, inserted.task.created_at)
