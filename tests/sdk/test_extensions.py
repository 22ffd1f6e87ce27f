"""Types, data converters and lifespans from end to end: a client, a server on SQLite and a worker."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from cryptography.fernet import Fernet, MultiFernet

from perdure import (
    AsyncPerdure,
    Context,
    DataConverter,
    InvalidArgument,
    Middleware,
    Perdure,
    RetryPolicy,
    TaskFailed,
    task,
)
from perdure.core.model import Payload
from perdure.sdk.converter import PLAIN, Converter

STORE = "sqlite:///:memory:"


@dataclass
class Order:
    id: UUID
    price: Decimal
    due: datetime


@dataclass
class Receipt:
    order: Order
    paid: frozenset[str]


ORDER = Order(UUID(int=7), Decimal("19.90"), datetime(2026, 1, 2, 3, 4, 5, 678, UTC))


@task
async def pay_the_order(ctx: Context, payload: Order) -> Receipt:
    ctx.checkpoint("paying")
    return Receipt(payload, frozenset({ctx.type}))


@task
def stateful(ctx: Context, payload: Any) -> Any:
    return ctx.state["pool"]


@task
async def stateful_async(ctx: Context, payload: Any) -> Any:
    return ctx.state["pool"]


# ---------------------------------------------------------------------------------------------------------------- types
async def test_b135_values_arrive_as_they_were_sent() -> None:
    async with AsyncPerdure(STORE) as app, app.worker():
        job = await app.enqueue(pay_the_order, ORDER)
        expected = Receipt(ORDER, frozenset({"pay_the_order"}))
        assert await job.result(20) == expected
        assert await app.job(job.id, pay_the_order).result() == expected
        plain = {
            "order": {"id": str(ORDER.id), "price": "19.90", "due": "2026-01-02T03:04:05.000678Z"},
            "paid": ["pay_the_order"],
        }
        assert await app.job(job.id).result() == plain
        by_name, by_json = await app.enqueue("pay_the_order", ORDER), await app.enqueue(pay_the_order, plain["order"])
        assert await by_name.result(20) == await by_json.result(20) == expected
        many = await app.enqueue_many(pay_the_order, [ORDER, ORDER])
        assert [await one.result(20) for one in many] == [expected, expected]


async def test_b135_what_would_not_arrive_is_refused_at_the_call() -> None:
    async with AsyncPerdure(STORE) as app:
        for payload, path in [
            (None, "payload"),
            ({"id": "1"}, "payload.id"),
            (Order(UUID(int=1), Decimal("nan"), ORDER.due), "payload.price"),
        ]:
            with pytest.raises(InvalidArgument) as caught:
                await app.enqueue(pay_the_order, payload)
            assert caught.value.field == path
        with pytest.raises(InvalidArgument, match=r"^payloads\[1\]\.due"):
            await app.enqueue_many(pay_the_order, [ORDER, {"id": str(ORDER.id), "price": "1", "due": 3.5}])
        with pytest.raises(InvalidArgument, match="annotate the handler"):
            await app.enqueue(stateful, ORDER)
        with pytest.raises(InvalidArgument, match=r"^payload\.at is a datetime"):
            await app.enqueue("lives elsewhere", {"at": ORDER.due})
        await app.enqueue("lives elsewhere", ORDER)  # whoever has the handler says what it is there


# ------------------------------------------------------------------------------------------------------ data converters
class Encrypted(DataConverter):
    """Compressed as well: one step each, in one `encode`."""

    encoding = "binary/encrypted"

    def __init__(self, *keys: bytes) -> None:
        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def encode(self, data: bytes) -> bytes:
        return self._fernet.encrypt(zlib.compress(data))

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(self._fernet.decrypt(data))


class Compressed(DataConverter):
    encoding = "binary/zlib"

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    __hash__ = None  # type: ignore[assignment]


class OwnTypes(DataConverter):
    def to_plain(self, value: object) -> object:
        if isinstance(value, Money):
            return value.cents
        raise NotImplementedError

    def from_plain(self, kind: type, value: object) -> object:
        if kind is Money:
            if not isinstance(value, int):
                raise ValueError("Expected cents")
            return Money(value)
        raise NotImplementedError


@dataclass
class Bill:
    total: Money
    parts: list[Money]


async def test_what_a_data_converter_encodes_is_all_that_is_stored() -> None:
    """SDK-10."""
    key = Fernet.generate_key()
    async with AsyncPerdure(STORE, converter=Encrypted(key)) as app, app.worker():
        job = await app.enqueue(pay_the_order, ORDER)
        assert (await job.result(20)).order == ORDER
        view = await job.status()
        for payloads in (view.payload, view.result):
            assert payloads is not None
            assert payloads[0].metadata == {"encoding": "binary/encrypted"}
            assert b"19.90" not in payloads[0].data
        assert (await (await app.enqueue("pay_the_order", ORDER)).result(20)).order == ORDER


async def test_a_client_without_the_codec_says_so(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with AsyncPerdure(url, converter=Encrypted(Fernet.generate_key())) as app, app.worker():
        id = (job := await app.enqueue(pay_the_order, ORDER)).id
        await job.result(20)
    async with AsyncPerdure(url) as app:
        with pytest.raises(InvalidArgument, match="'binary/encrypted'"):
            await app.job(id).result()
    async with AsyncPerdure(url, converter=Encrypted(Fernet.generate_key())) as app:
        with pytest.raises(InvalidArgument, match="cannot decode"):
            await app.job(id).result()


async def test_a_worker_without_the_codec_fails_the_task_and_lives(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with AsyncPerdure(url, converter=Compressed()) as app:
        id = (await app.enqueue(pay_the_order, ORDER)).id
    async with AsyncPerdure(url) as app, app.worker():
        with pytest.raises(TaskFailed) as caught:
            await app.job(id).result(20)
        assert (caught.value.failure.code, caught.value.failure.retryable) == ("undecodable_payload", False)
        assert (await (await app.enqueue(pay_the_order, ORDER)).result(20)).order == ORDER


def test_keys_and_codecs_may_change_while_tasks_are_open() -> None:
    old, new = Fernet.generate_key(), Fernet.generate_key()
    before = [
        PLAIN.to_payloads([1], ""),
        Converter([Compressed()]).to_payloads([1], ""),
        Converter([Encrypted(old)]).to_payloads([1], ""),
    ]
    now = Converter([Encrypted(new, old), Compressed()])
    assert [now.from_payloads(payloads, "") for payloads in before] == [[1], [1], [1]]
    assert now.to_payloads(1, "")[0].metadata == {"encoding": "binary/encrypted"}


def test_every_kind_of_value_passes_a_codec() -> None:
    converter = Converter([Compressed()])
    for value in (None, b"\x00", {"a": [1.5, "\x00"]}, ""):
        payloads = converter.to_payloads(value, "")
        assert payloads[0].metadata == {"encoding": "binary/zlib"}
        assert converter.from_payloads(payloads, "") == value
    assert converter.from_payloads((), "") is None


async def test_types_of_its_own() -> None:
    @task
    async def split(ctx: Context, payload: Bill) -> list[Money]:
        return [payload.total, *payload.parts]

    async with AsyncPerdure(STORE, converter=[OwnTypes(), Compressed()]) as app, app.worker():
        job = await app.enqueue(split, Bill(Money(5), [Money(2), Money(3)]))
        assert await job.result(20) == [Money(5), Money(2), Money(3)]
        with pytest.raises(InvalidArgument, match=r"^payload\.total: Expected cents"):
            await app.enqueue(split, {"total": "5", "parts": []})


@pytest.mark.parametrize("name", ["", "x" * 51, "json/plain", "é", "a\n", None, 5], ids=repr)
def test_an_encoding_has_a_name_of_its_own(name: Any) -> None:
    class Named(Compressed):
        encoding = name

    with pytest.raises(InvalidArgument, match="encoding"):
        Converter([Named()])
    with pytest.raises(InvalidArgument, match="is taken"):
        Converter([Compressed(), Compressed()])


@pytest.mark.parametrize("data", [b"", b"\xff", zlib.compress(b""), zlib.compress(b"\x92\x80\xc4")], ids=repr)
def test_what_was_tampered_with_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="payload: binary/zlib cannot decode it"):
        Converter([Compressed()]).from_payloads((Payload({"encoding": "binary/zlib"}, data),), "payload")


def test_a_codec_that_returns_no_bytes_is_refused() -> None:
    class Text(Compressed):
        def encode(self, data: bytes) -> Any:
            return "text"

    with pytest.raises(InvalidArgument, match="returned a str"):
        Converter([Text()]).to_payloads(1, "payload")


# ------------------------------------------------------------------------------------------------------------- lifespan
class Shared:
    """A lifespan, and what happened to it."""

    def __init__(self) -> None:
        self.entered: list[AsyncPerdure] = []
        self.tasks: list[asyncio.Task[Any] | None] = []
        self.left = 0

    @asynccontextmanager
    async def __call__(self, app: AsyncPerdure) -> AsyncIterator[dict[str, Any]]:
        self.entered.append(app)
        async with asyncio.timeout(30), asyncio.TaskGroup():  # which must be left by the task that entered them
            yield {"pool": f"pool {len(self.entered)}", "app": app}
            self.left += 1


async def test_handlers_share_what_the_lifespan_has() -> None:
    shared = Shared()
    async with AsyncPerdure(STORE, lifespan=shared) as app:
        assert not shared.entered
        for number in (1, 2):
            async with app.worker():
                for handler in (stateful, stateful_async):
                    assert await (await app.enqueue(handler)).result(20) == f"pool {number}"
            assert (len(shared.entered), shared.left) == (number, number)
        assert shared.entered == [app, app]


def test_the_lifespan_of_a_blocking_app_is_entered_and_left_by_one_task() -> None:
    shared = Shared()
    with Perdure(STORE, lifespan=shared) as app:
        with app.worker():
            assert app.enqueue(stateful).result(20) == "pool 1"
        assert shared.left == 1


def test_a_worker_whose_lifespan_fails_does_not_start() -> None:
    @asynccontextmanager
    async def broken(app: AsyncPerdure) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    with Perdure(STORE, lifespan=broken) as app, pytest.raises(LookupError, match="no database"), app.worker():
        pass


async def test_the_lifespan_ends_after_the_last_handler() -> None:
    order: list[str] = []
    started = threading.Event()

    @asynccontextmanager
    async def lifespan(app: AsyncPerdure) -> AsyncIterator[None]:
        yield
        order.append("lifespan")

    @task
    async def lingers(ctx: Context, payload: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            order.append("handler")

    async with AsyncPerdure(STORE, lifespan=lifespan) as app, app.worker(drain_seconds=0.0):
        await app.enqueue(lingers)
        assert await asyncio.to_thread(started.wait, 20)
    assert order == ["handler", "lifespan"]


async def test_a_handler_may_enqueue_with_the_app_that_its_lifespan_got() -> None:
    shared = Shared()

    @task
    async def parent(ctx: Context, payload: Any) -> Any:
        return await (await ctx.state["app"].enqueue(stateful)).result(20)

    async with AsyncPerdure(STORE, lifespan=shared) as app, app.worker():
        assert await (await app.enqueue(parent)).result(20) == "pool 1"


class AsyncHook(Middleware):
    async def before(self, ctx: Context, payload: Any) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    "extensions",
    [{"middelware": []}, {"middleware": [print]}, {"middleware": [AsyncHook()]}, {"lifespan": 1}],
    ids=["unknown", "no middleware", "async", "no function"],
)
def test_extensions_that_are_none_are_refused_at_once(extensions: Any) -> None:
    """B048."""
    with pytest.raises(TypeError):
        AsyncPerdure(STORE, **extensions)


async def test_b042_fixed_delays_are_kept() -> None:
    """On a real clock: 0.2 s, a tenth of it at random, and a poll."""
    starts: list[float] = []

    @task
    async def fails(ctx: Context, payload: Any) -> int:
        starts.append(asyncio.get_running_loop().time())
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    policy = RetryPolicy(max_attempts=3, delays=(0.2, 0.4))
    async with AsyncPerdure(STORE) as app, app.worker():
        assert await (await app.enqueue(fails, retry=policy)).result(20) == 3
    gaps = [late - early for early, late in pairwise(starts)]
    assert 0.2 <= gaps[0] < 1.2 and 0.4 <= gaps[1] < 1.4, gaps
    assert timedelta(seconds=sum(gaps)) < timedelta(seconds=3)


async def test_b046_a_server_checks_the_table() -> None:
    async with AsyncPerdure(STORE) as app:
        with pytest.raises(InvalidArgument) as caught:
            await app.enqueue(stateful, retry=RetryPolicy(delays=(1, 0)))
    assert caught.value.field == "retry.delays[1]"
