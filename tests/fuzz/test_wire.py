"""The wire protocol of a real server, on both databases: bodies of the right types with any values in them, in any
order, and bytes that are no frames at all. Whatever comes, it is answered, and never by a 5xx."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import aiohttp
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.commands import OUTCOMES
from perdure.core.errors import NoWorker, PerdureError
from perdure.core.ids import Mint
from perdure.core.states import State
from tests.fuzz.effort import effort
from tests.fuzz.running import Running, running
from tests.fuzz.test_codecs import damaged
from tests.fuzz.values import of

MINT = Mint()
IDS = [MINT.task_id(1_800_000_000_000_000) for _ in range(4)]
QUEUES = st.sampled_from(("default", "mail", "ü"))
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(("a", "b")),
    "queue": QUEUES,
    "queues": st.lists(QUEUES, min_size=1, max_size=3),
    "app": st.just("default"),
    "idempotency_key": st.none() | st.sampled_from(("k1", "k2")),
    "minted": st.just(b"") | st.sampled_from(IDS),
    "delay": st.none() | st.just(0.0) | st.just("1ms"),
    "run_at": st.none(),
    "priority": st.integers(1, 5),
    "fairness_key": st.sampled_from(("", "x")),
    "retry": st.none(),
    "timeouts": st.none(),
    "incarnation": st.integers(1, 3),
    "epoch": st.integers(1, 5),
    "poll": st.integers(1, 5),
    "capacity": st.integers(1, 3),
    "slots": st.integers(1, 10),
    "limit": st.integers(1, 100),
    "cursor": st.none(),
    "state": st.none() | st.sampled_from([state.name for state in State]),
    "outcome": st.sampled_from(OUTCOMES),
    "retry_after": st.none() | st.floats(0, 10),
    "progress": st.none(),
    "workflow_id": st.sampled_from(("w1", "w2")),
    "run_id": st.none(),
    "request_id": st.sampled_from(("", "r1")),
    "update_id": st.sampled_from(("u1", "u2")),
    "activity_id": st.sampled_from(("a1", "a2")),
    "name": st.sampled_from(("n1", "n2")),
    "id_reuse": st.sampled_from(("allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate")),
    "id_conflict": st.sampled_from(("fail", "use_existing", "terminate_existing")),
    "event_id": st.none() | st.integers(1, 5),
    "step": st.none() | st.just("n1"),
    "lacks_version": st.none() | st.just("v"),
    "stage": st.sampled_from(("accepted", "completed")),
    "cron": st.just(""),
    "status": st.none(),
    "start_delay": st.none(),
    "execution_timeout": st.none(),
    "run_timeout": st.none(),
    "search_attributes": st.just({}),
    "memo": st.just({}),
    "after": st.integers(0, 5),
    "task_id": st.integers(0, 5).map("#{}".format),
    "lease": st.integers(0, 5).map(lambda number: b"#%d" % number),
}
"""Values with which a request gets further than the first check; #n stands for what the server told."""
SAID = st.sampled_from(sorted(m.OPS)).flatmap(lambda op: of(m.OPS[op][0], LIKELY).map(lambda body: (op, body)))
_namespaces = itertools.count(1)


class Talk:
    """A conversation with a server: what it told is asked about."""

    def __init__(self, url: str, transport: Any) -> None:
        self.service = HttpService(url, transport=transport, namespace=f"n{next(_namespaces)}")
        self.ids: list[str] = []
        self.leases: list[bytes] = []
        self.accepted = 0

    async def say(self, op: str, body: m.Body) -> None:
        """A reply, or an error that blames whoever asked; or, of a query, that no worker was there to answer it."""
        self._fill_in(body)
        if hasattr(body, "wait") and 0.0 <= body.wait <= 25.0:
            body.wait = 0.001
        try:
            reply = await getattr(self.service, op)(body)
        except PerdureError as error:
            unanswered = op == "query_workflow" and isinstance(error, NoWorker)
            assert 400 <= error.status < 500 or unanswered, (op, body, error)
            assert error.code and error.detail, (op, body, error)
            return
        assert isinstance(reply, m.OPS[op][1])
        self.accepted += 1
        if isinstance(reply, m.EnqueueReply):
            assert all(item.task_id or (item.error and item.error.status < 500) for item in reply.tasks), (body, reply)
            self.ids += [item.task_id for item in reply.tasks if item.task_id]
        elif isinstance(reply, m.PollReply):
            self.leases += [delivery.lease for delivery in reply.tasks]
        elif isinstance(reply, m.CompleteReply):
            assert all(item.error is None or item.error.status < 500 for item in reply.outcomes), (body, reply)

    def _fill_in(self, body: m.Body) -> None:
        for name in body.__struct_fields__:
            value = getattr(body, name)
            if name == "task_id" and value.startswith("#") and self.ids:
                setattr(body, name, self.ids[int(value[1:]) % len(self.ids)])
            elif name == "lease" and value.startswith(b"#") and self.leases:
                setattr(body, name, self.leases[int(value[1:]) % len(self.leases)])
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, m.Body):
                        self._fill_in(item)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    def postgres() -> Any:
        return request.getfixturevalue("postgres_server")

    with running(request.param, tmp_path_factory.mktemp("wire"), postgres) as server:
        yield server


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_any_conversation(server: Running, transport: str) -> None:
    accepted = 0

    async def talk(said: list[tuple[str, m.Body]]) -> None:
        nonlocal accepted
        talking = Talk(server.url, transport)
        try:
            for op, body in said:
                await talking.say(op, body)
            accepted += talking.accepted
        finally:
            await talking.service.close()

    @effort(25)
    @given(st.lists(SAID, min_size=1, max_size=15))
    def check(said: list[tuple[str, m.Body]]) -> None:
        asyncio.run(talk(said))

    check()
    assert accepted > 10, "hardly anything gets past the first checks: see LIKELY"


def test_anything_that_is_no_frame(server: Running) -> None:
    """It is answered under id 0, or by the id that could be read, and the connection goes on."""

    async def send(whole: bytes, data: st.DataObject) -> None:
        async with aiohttp.ClientSession() as session, session.ws_connect(f"{server.url}/wire") as socket:
            for _ in range(3):
                await socket.send_bytes(data.draw(damaged(whole) | st.binary(max_size=30)))
            await socket.send_bytes(msgspec.msgpack.encode([(7_000_000, "queues", {})]))
            async with asyncio.timeout(10):
                while True:
                    frames = msgspec.msgpack.decode(await socket.receive_bytes())
                    assert all(status == 0 or 400 <= status < 500 for _, status, _ in frames), frames
                    if any(id == 7_000_000 for id, _, _ in frames):
                        return

    frame = st.sampled_from(sorted(m.OPS)).flatmap(
        lambda op: st.tuples(st.integers(0, 9), st.just(op), of(m.OPS[op][0]))
    )

    @effort(30)
    @given(st.lists(frame, max_size=3), st.data())
    def check(frames: list[Any], data: st.DataObject) -> None:
        asyncio.run(send(msgspec.msgpack.encode(frames), data))

    check()


@pytest.mark.parametrize("content_type", ["application/json", "application/msgpack", "text/plain", ""])
def test_any_body_by_post(server: Running, content_type: str) -> None:
    async def send(op: str, body: bytes) -> None:
        headers = {"Content-Type": content_type}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.url}/wire/{op}", data=body, headers=headers) as answer,
        ):
            assert answer.status == 200 or 400 <= answer.status < 500, (op, body, await answer.text())

    @effort(10)
    @given(st.sampled_from([*sorted(m.OPS), "", "x", "%00", "enqueue/"]), st.data())
    def check(op: str, data: st.DataObject) -> None:
        whole = msgspec.json.encode(data.draw(of(m.OPS[op][0]))) if op in m.OPS else b"{}"
        asyncio.run(send(op, data.draw(damaged(whole) | st.binary(max_size=30))))

    check()
