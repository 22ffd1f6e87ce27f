"""`perdure queues` and `perdure workers`: what waits where, and who works."""

from __future__ import annotations

from perdure.cli.ask import LOCAL, ApiKey, Json, Namespace, Server, call
from perdure.cli.show import show_json, show_table, time
from perdure.core.messages import QueueView


def queues(server: str, api_key: str | None, namespace: str | None, json: bool) -> None:
    """Show the queues that hold open tasks or are polled."""
    found = call(server, api_key, namespace, lambda app: app.queues())
    if json:
        show_json({"queues": found})
        return
    titles = ("queue", "ready", "running", "delayed", "retrying", "oldest", "workers")
    show_table(titles, [_row(queue) for queue in found])


def _row(queue: QueueView) -> tuple[str, ...]:
    counts = (
        f"{getattr(queue, name)}{'+' if name in queue.at_least else ''}"
        for name in ("ready", "running", "delayed", "retrying")
    )
    oldest = "-" if queue.oldest_ready_seconds is None else f"{queue.oldest_ready_seconds:.0f}s"
    return (queue.name, *counts, oldest, str(queue.workers))


def workers(server: Server = LOCAL, api_key: ApiKey = None, namespace: Namespace = None, json: Json = False) -> None:
    """Show the worker processes that are registered, and what they poll.

    Example: perdure workers --json
    """
    found = call(server, api_key, namespace, lambda app: app.workers())
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
