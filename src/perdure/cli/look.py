"""`perdure queues` and `perdure workers`: what waits where, and who works."""

from __future__ import annotations

from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json, show_table, time
from perdure.core.messages import QueueView


def queues(whom: Whom, json: bool) -> None:
    """Show the queues that hold open tasks or are polled."""
    found = call(whom, lambda app: app.queues())
    if json:
        show_json({"queues": found})
        return
    titles = ("queue", "ready", "running", "delayed", "retrying", "oldest", "workers", "owner")
    show_table(titles, [_row(queue) for queue in found])


def _row(queue: QueueView) -> tuple[str, ...]:
    counts = (
        f"{getattr(queue, name)}{'+' if name in queue.at_least else ''}"
        for name in ("ready", "running", "delayed", "retrying")
    )
    oldest = "-" if queue.oldest_ready_seconds is None else f"{queue.oldest_ready_seconds:.0f}s"
    return (queue.name, *counts, oldest, str(queue.workers), queue.owner or "-")


@spread
def workers(*, whom: Whom, json: Json = False) -> None:
    """Show the worker processes that are registered, and what they poll.

    Example: perdure workers --json
    """
    found = call(whom, lambda app: app.workers())
    if json:
        show_json({"workers": found})
        return
    rows = [
        (
            worker.identity,
            "ending" if worker.ending else "connected",
            str(worker.slots),
            time(worker.started_at),
            worker.build or "-",
            ", ".join(worker.queues),
        )
        for worker in found
    ]
    show_table(("worker", "state", "slots", "started", "build", "queues"), rows)
