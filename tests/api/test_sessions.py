"""Whose leases end early: the rule by itself, and over real connections."""

from __future__ import annotations

import asyncio

from perdure.api.server import App, Server
from perdure.api.sessions import FEW, GRACE, Sessions
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.engine.engine import Engine
from tests.api.calls import INCARNATION, enqueue, poll


def opened(count: int) -> Sessions:
    sessions = Sessions()
    for incarnation in range(count):
        sessions.opened(incarnation, 1)
    return sessions


def test_a_lost_worker_ends_after_the_grace() -> None:
    sessions = opened(2)
    assert sessions.broke(0, 1, 100.0)
    assert sessions.due(100.0 + GRACE / 2) == []
    assert sessions.due(100.0 + GRACE) == [(0, 1)]
    assert sessions.due(200.0) == [], "once"


def test_a_worker_that_connects_again_goes_on() -> None:
    sessions = opened(1)
    sessions.broke(0, 1, 100.0)
    sessions.opened(0, 2)
    assert sessions.due(200.0) == []
    assert sessions.broke(0, 2, 300.0), "and may break again"
    assert sessions.due(301.0) == [(0, 2)]


def test_an_old_connection_that_breaks_late_says_nothing() -> None:
    """The new one was open before the server noticed that the old one is gone."""
    sessions = opened(1)
    sessions.opened(0, 2)
    assert not sessions.broke(0, 1, 100.0)
    assert sessions.due(200.0) == []


def test_goodbye_leaves_nothing_to_end() -> None:
    sessions = opened(2)
    sessions.closed(0)
    assert not sessions.broke(0, 1, 100.0)
    sessions.broke(1, 1, 100.0)
    sessions.closed(1)  # by its supervisor, that saw it die
    assert sessions.due(200.0) == []


def test_a_mass_break_is_the_network() -> None:
    """More than 3 and over half within a second: the workers live, and their leases decide."""
    sessions = opened(10)
    for incarnation in range(6):
        sessions.broke(incarnation, 1, 100.0 + incarnation / 10)
    assert sessions.due(200.0) == []


def test_half_is_no_mass_and_neither_are_a_few() -> None:
    sessions = opened(10)
    for incarnation in range(5):
        sessions.broke(incarnation, 1, 100.0)
    assert len(sessions.due(200.0)) == 5
    sessions = opened(FEW)
    for incarnation in range(FEW):
        sessions.broke(incarnation, 1, 100.0)
    assert len(sessions.due(200.0)) == FEW, "a host with three workers may die as a whole"


def test_breaks_one_after_the_other_are_no_mass() -> None:
    sessions = opened(10)
    for incarnation in range(10):
        sessions.broke(incarnation, 1, 100.0 + 2 * incarnation)
        assert sessions.due(100.0 + 2 * incarnation + GRACE) == [(incarnation, 1)]


def test_those_that_broke_with_the_mass_but_were_due_before_its_end_are_held_back_too() -> None:
    """The first of a mass is judged when its grace is over, and by then the others have broken."""
    sessions = opened(6)
    for incarnation in range(6):
        sessions.broke(incarnation, 1, 100.0 + incarnation * 0.19)
    assert sessions.due(101.0) == []


async def open_session(server: Server, epoch: int = 1, incarnation: int = INCARNATION) -> HttpService:
    service = HttpService(server.url)
    await service.open_session(m.OpenSession(incarnation, epoch, f"w{incarnation}", ["default"], 10))
    return service


async def lease_one(worker: HttpService, incarnation: int = INCARNATION) -> m.Delivery:
    [delivery] = (await worker.poll(m.Poll(incarnation, 1, ["default"], 1))).tasks
    await worker.heartbeat(m.Heartbeat(incarnation, [m.Beat(delivery.lease)]))
    return delivery


async def test_a_closed_connection_ends_its_leases(server: Server) -> None:
    """A dead worker's task is retried about a second later, long before the lease would run out."""
    worker = await open_session(server)
    client = HttpService(server.url)
    [task_id] = await enqueue(client)
    await lease_one(worker)
    await worker.close()
    while (view := await client.get(m.Get(task_id, wait=0.1))).state == "LEASED":
        pass
    assert (view.attempts[0].outcome, view.attempts[0].failure and view.attempts[0].failure.code) == (
        "lost",
        "lease_lost",
    )
    await client.close()


async def test_a_resumed_session_keeps_its_leases(server: Server) -> None:
    """LEASE-07: the next epoch of the process takes over within the grace."""
    first = await open_session(server)
    [task_id] = await enqueue(first)
    delivery = await lease_one(first)
    second = await open_session(server, epoch=2)
    await first.close()
    assert (await second.get(m.Get(task_id, wait=GRACE * 1.5))).state == "LEASED"
    completed = await second.complete(m.Complete([m.Completion(delivery.lease, "succeeded")]))
    assert completed.outcomes[0].state == "SUCCEEDED"
    await second.close()


async def test_leases_survive_a_restart_of_the_server(engine: Engine) -> None:
    """All connections break with the server: that says nothing about the workers."""
    server = Server(App(engine), port=0)
    await server.start()
    worker = await open_session(server)
    [task_id] = await enqueue(worker)
    await lease_one(worker)
    await server.stop()
    again = Server(App(engine), port=0)
    await again.start()
    client = HttpService(again.url)
    assert (await client.get(m.Get(task_id, wait=GRACE * 1.5))).state == "LEASED"
    await asyncio.gather(worker.close(), client.close())
    await again.stop()


async def test_the_hook_opens_a_session_on_every_connection(engine: Engine) -> None:
    """Before any other call; and a poll under way goes on over the break."""
    server = Server(App(engine), port=0)
    await server.start()
    port = int(server.url.rpartition(":")[2])
    epochs: list[int] = []

    async def greet() -> None:
        epochs.append(len(epochs) + 1)
        await worker.open_session(m.OpenSession(INCARNATION, epochs[-1], "w", ["default"], 10))

    worker = HttpService(server.url, on_connect=greet)
    waiting = asyncio.ensure_future(poll(worker, wait=20.0))
    client = HttpService(server.url)
    await client.find(m.Find(limit=1))
    await server.stop()
    again = Server(App(engine), port=port)
    await again.start()
    [task_id] = await enqueue(client)
    [delivery] = await waiting
    assert (delivery.task_id, epochs) == (task_id, [1, 2])
    await asyncio.gather(worker.close(), client.close())
    await again.stop()
