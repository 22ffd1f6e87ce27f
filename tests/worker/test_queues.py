"""In which order a worker takes what several queues hold, and how much of it at once: with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from perdure import AsyncPerdure
from tests.worker.processes import WorkerProcess, lines
from tests.worker.test_processes import app, server, start, until  # noqa: F401  # fixtures

Start = Callable[..., WorkerProcess]


async def test_queues_are_polled_in_strict_order(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """As documented: while the first queue is flooded nothing of the second one is begun; and what is urgent in a queue
    comes first there, but for the share of the rest."""
    path = tmp_path / "out"

    async def give(queue: str, count: int, **options: int) -> None:
        payloads = [{"path": str(path), "line": f"{queue} {options.get('priority', 3)}"} for _ in range(count)]
        await app.enqueue_many("job_append", payloads, queue=queue, **options)

    await give("second", 20)
    await give("first", 50)
    await give("first", 10, priority=1)
    worker = start("--queue", "first", "--queue", "second", "--slots", "1")
    await until(lambda: len(lines(path)) >= 20)
    await give("first", 30)
    await until(lambda: len(lines(path)) == 110)
    begun = list(lines(path))
    assert begun[:12].count("first 1") == 10, "one claim in eight begins at a lower priority (QUOTA-17)"
    assert begun[:90].count("first 3") == 80
    assert begun[90:] == ["second 3"] * 20
    worker.signal()
    assert await asyncio.to_thread(worker.wait) == 0


async def test_heavy_tasks_among_light_ones(
    app: AsyncPerdure,  # noqa: F811
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """WORK-09: never more than the slots, and no heavy task is starved by the light ones behind it."""
    path = tmp_path / "out"
    for n in range(200):
        name = "job_span_heavy" if n % 20 == 10 else "job_span"
        await app.enqueue(name, {"path": str(path), "line": n, "seconds": 0.01})
    start("--slots", "4")
    await until(lambda: len(lines(path)) == 400)
    begun: list[int] = []
    taken = most = 0
    for line in lines(path):
        weight, number = map(int, line.split())
        taken += weight
        most = max(most, taken)
        if weight > 0:
            begun.append(number)
    assert most <= 4
    assert all(abs(begun.index(number) - number) <= 10 for number in range(10, 200, 20))
    assert {view.attempt for view in (await app.find(limit=1000)).tasks} == {1}
