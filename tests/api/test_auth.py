"""Who may call, and what one namespace can see of another: nothing (SEC-01, SEC-02, SEC-05, SEC-19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from perdure.api import auth
from perdure.api.auth import Gate
from perdure.api.keys import PREFIX, hash_key, new_key
from perdure.api.server import App, Server, is_loopback
from perdure.api.service import Caller
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from perdure.engine.engine import Engine
from perdure.store.base import StoreFault
from perdure.store.sqlite import SqliteStore
from tests.api.calls import INCARNATION, enqueue, new_rest, poll, task, until

TRANSPORTS = ("websocket", "http")


@pytest.fixture
async def keys(store: SqliteStore) -> dict[str, str]:
    """An API key each for two namespaces."""
    made = {namespace: new_key() for namespace in ("blue", "red")}
    for namespace, key in made.items():
        await store.add_api_key(hash_key(key), namespace, "test")
    return made


@pytest.fixture
async def locked(keys: dict[str, str], server: Server) -> AsyncIterator[Server]:
    """A server whose store has keys."""
    yield server


def test_keys_are_random_and_recognizable() -> None:
    assert new_key() != new_key()
    assert new_key().startswith(PREFIX) and len(new_key()) >= len(PREFIX) + 43
    assert len(hash_key(new_key())) == 32


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_key_decides_the_namespace(locked: Server, keys: dict[str, str], transport: str) -> None:
    blue = HttpService(locked.url, api_key=keys["blue"], transport=transport)  # type: ignore[arg-type]
    [task_id] = await enqueue(blue)
    assert (await blue.get(m.Get(task_id))).namespace == "blue"
    await blue.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("key", "namespace", "error"),
    [
        (None, None, Unauthenticated),
        (None, "blue", Unauthenticated),
        ("pdk_wrong", None, Unauthenticated),
        ("", None, Unauthenticated),
        ("blue", "red", PermissionDenied),
    ],
)
async def test_without_the_right_key_nothing_works(
    locked: Server, keys: dict[str, str], transport: str, key: str | None, namespace: str | None, error: type[Exception]
) -> None:
    api_key = keys.get(key, key) if key is not None else None
    service = HttpService(
        locked.url,
        api_key=api_key,
        namespace=namespace,
        transport=transport,  # type: ignore[arg-type]
    )
    for _ in range(2):
        with pytest.raises(error):
            await service.find(m.Find())
    await service.close()


async def test_rest_needs_a_key_too(locked: Server, keys: dict[str, str]) -> None:
    async with new_rest(locked.url) as rest:
        for method, path in (
            ("GET", "/v1/tasks"),
            ("GET", "/v1/workers"),
            ("GET", "/jobs/x"),
            ("POST", "/v1/tasks/x/retry"),
        ):
            answer = await rest(method, path)
            assert (answer.status, answer.body["code"]) == (401, "unauthenticated"), path
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await rest("GET", "/healthz")).status == 200
        basic = {"Authorization": f"Basic {keys['red']}"}
        assert (await rest("GET", "/v1/tasks", headers=basic)).status == 401
        bearer = {"Authorization": f"bearer {keys['red']}"}
        assert (await rest("GET", "/v1/tasks", headers=bearer)).status == 200


async def test_a_namespace_sees_nothing_of_another(server: Server) -> None:
    """By id, in lists, by key, through a worker's polls; not even that it exists."""
    async with AsyncExitStack() as stack:
        blue, red = HttpService(server.url, namespace="blue"), HttpService(server.url, namespace="red")
        stack.push_async_callback(blue.close)
        stack.push_async_callback(red.close)
        [ours] = await enqueue(blue, task(idempotency_key="k"))
        for call in (
            red.get(m.Get(ours)),
            red.get(m.Get(ours, wait=20.0)),
            red.cancel(m.Cancel(ours)),
            red.retry(m.Retry(ours)),
        ):
            with pytest.raises(NotFound):
                await call
        assert (await red.find(m.Find())).tasks == []
        [theirs] = await enqueue(red, task(idempotency_key="k"))
        assert theirs != ours
        assert [d.task_id for d in await poll(red)] == [theirs]
        body = m.OpenSession(INCARNATION, 1, "w", ["default"], 1)
        await blue.open_session(body)
        async with new_rest(server.url, **{"Perdure-Namespace": "red"}) as rest:
            assert (await rest("GET", f"/v1/tasks/{ours}")).status == 404
            assert (await rest("GET", "/v1/workers")).body == {"workers": []}


async def test_a_repeated_poll_gives_nothing_to_another_namespace(server: Server) -> None:
    """Even if it guessed the incarnation."""
    blue, red = HttpService(server.url, namespace="blue"), HttpService(server.url, namespace="red")
    await enqueue(blue)
    assert len(await poll(blue, 1)) == 1
    assert await poll(red, 1, wait=0.1) == []
    await blue.close()
    await red.close()


@pytest.mark.parametrize("namespace", [" ", "a\x1fb", "x" * 256])
async def test_names_of_namespaces_are_checked(engine: Engine, namespace: str) -> None:
    gate = Gate(engine.store)
    await gate.start()
    for name in (namespace.encode(), b"\xff"):
        with pytest.raises(InvalidArgument):
            gate.admit([(b"perdure-namespace", name)])
    await gate.stop()


class _Keys:
    """A store of keys that can be away, or slow."""

    def __init__(self) -> None:
        self.keys: dict[bytes, str] = {}
        self.away = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.reads = 0

    async def api_keys(self) -> dict[bytes, str]:
        self.reads += 1
        if self.away:
            raise StoreFault("away")
        await self.answers.wait()
        return dict(self.keys)


@pytest.fixture
async def keyring(monkeypatch: pytest.MonkeyPatch) -> _Keys:
    monkeypatch.setattr(auth, "RELOAD_SECONDS", 0.001)
    return _Keys()


@pytest.fixture
async def gate(keyring: _Keys) -> AsyncIterator[Gate]:
    gate = Gate(keyring)  # type: ignore[arg-type]
    yield gate
    await gate.stop()


async def test_nobody_comes_in_before_the_keys_are_known(keyring: _Keys, gate: Gate) -> None:
    keyring.away = True
    with pytest.raises(Unavailable):
        await gate.start()
    with pytest.raises(Unavailable):
        gate.admit([])
    keyring.away = False
    await gate.start()
    assert gate.admit([]) == Caller("default")


async def test_keys_made_elsewhere_are_known_soon_and_outlast_an_outage(keyring: _Keys, gate: Gate) -> None:
    """CLUS-01: another process may add a key; the database may be away."""
    await gate.start()
    assert not gate.locked
    key = new_key()
    keyring.keys[hash_key(key)] = "blue"
    await until(lambda: gate.locked)
    with pytest.raises(Unauthenticated):
        gate.admit([])
    keyring.away = True
    reads = keyring.reads
    await until(lambda: keyring.reads > reads + 1)
    assert gate.admit([(b"authorization", f"Bearer {key}".encode())]) == Caller("blue", key=hash_key(key))


async def test_known_keys_admit_while_the_database_is_slow(keyring: _Keys, gate: Gate) -> None:
    """A heartbeat must not wait behind lists that hold all connections for reads. One read of keys waits, not many."""
    await gate.start()
    keyring.answers.clear()
    reads = keyring.reads
    await until(lambda: keyring.reads > reads)
    assert gate.admit([]) == Caller("default")
    await asyncio.sleep(0.02)
    assert keyring.reads == reads + 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
async def test_an_open_server_is_not_reachable_from_outside(engine: Engine, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(PermissionDenied):
        await Server(App(engine), host, 0).start()


async def test_with_keys_it_may_be(engine: Engine, keys: dict[str, str]) -> None:
    server = Server(App(engine), "0.0.0.0", 0)
    await server.start()
    port = server.url.rpartition(":")[2]
    with pytest.raises(Conflict):
        await Server(App(engine), "0.0.0.0", int(port)).start()
    async with new_rest(f"http://127.0.0.1:{port}") as rest:
        assert (await rest("GET", "/healthz")).status == 200
    await server.stop()
    await server.stop()


async def test_a_gate_that_saw_a_key_stays_locked(keyring: _Keys, gate: Gate) -> None:
    """SEC-02: revoking the last key opens nothing, and ends what its holder was admitted to."""
    key = new_key()
    keyring.keys[hash_key(key)] = "blue"
    await gate.start()
    holder = gate.admit([(b"authorization", f"Bearer {key}".encode())])
    assert gate.admits(holder)
    keyring.keys.clear()
    await gate.run_once()
    assert gate.locked
    assert not gate.admits(holder)
    assert not gate.admits(Caller("blue"))
    with pytest.raises(Unauthenticated):
        gate.admit([])


async def test_a_revoked_worker_gets_no_more_tasks(locked: Server, keys: dict[str, str], store: SqliteStore) -> None:
    """Not even for a poll that was parked before."""
    holder = HttpService(locked.url, api_key=keys["blue"])
    parked = asyncio.ensure_future(poll(holder, 1, wait=20.0))
    await until(lambda: bool(locked._app._wire.engine.dispatch.waiting))
    await store.remove_api_key(hash_key(keys["blue"]))
    again = new_key()
    await store.add_api_key(hash_key(again), "blue", "")
    await locked._app.gate.run_once()
    other = HttpService(locked.url, api_key=again)
    [task_id] = await enqueue(other)
    assert [delivery.task_id for delivery in await poll(other, INCARNATION)] == [task_id]
    with pytest.raises(Unauthenticated):
        await holder.find(m.Find())
    parked.cancel()
    await asyncio.gather(parked, return_exceptions=True)
    await asyncio.gather(holder.close(), other.close())
