"""How appends reach the server: many in one request, each answered, whatever goes wrong."""

from __future__ import annotations

import asyncio

import pytest

from perdure.core.errors import Internal, InvalidArgument, LeaseLost, Unavailable
from perdure.core.messages import Delivery
from perdure.core.turn_commands import StartStep
from perdure.core.workflow_messages import Append, Appended, AppendReply, Appends
from perdure.worker import appends
from perdure.worker.appends import Appender, Sending
from perdure.worker.execute import Run


class Taker:
    """The one operation that appends need."""

    def __init__(self) -> None:
        self.requests: list[list[bytes]] = []
        self.faults: list[Exception] = []
        self.poison: dict[bytes, Exception] = {}
        self.refused: dict[bytes, list[Exception]] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, body: Appends) -> AppendReply:
        self.requests.append([one.lease for one in body.appends])
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        for one in body.appends:
            if one.lease in self.poison:
                raise self.poison[one.lease]
        return AppendReply([self._one(one) for one in body.appends])

    def _one(self, append: Append) -> Appended:
        if errors := self.refused.get(append.lease):
            return Appended(error=errors.pop(0).problem())  # type: ignore[attr-defined]
        return Appended(state="WAITING", last=append.after + len(append.commands))


class Asker:
    def __init__(self, taker: Taker) -> None:
        self.appender = Appender(taker)  # type: ignore[arg-type]
        self.runs: dict[bytes, Run] = {}

    def send(self, lease: bytes, commands: int = 1) -> asyncio.Future[Appended]:
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        run = self.runs[lease] = Run(Delivery("id", lease, "w", "default", 1, 1), None, lambda _: None, 0.0)
        steps = [StartStep(step_id=n, name="s") for n in range(commands)]
        self.appender.add(Sending(run, Append(lease, 3, steps), answer.set_result))  # type: ignore[arg-type]
        return answer


@pytest.fixture
def taker(monkeypatch: pytest.MonkeyPatch) -> Taker:
    monkeypatch.setattr(appends, "_PAUSE", (0.0, 0.0))
    return Taker()


async def test_what_comes_while_one_is_under_way_goes_together(taker: Taker) -> None:
    asker = Asker(taker)
    taker.gate.clear()
    answers = [asker.send(b"0")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answers += [asker.send(b"%d" % n) for n in range(1, 50)]
    taker.gate.set()
    assert [(await answer).last for answer in answers] == [4] * 50
    assert [len(request) for request in taker.requests] == [1, 49]


async def test_an_append_without_answer_is_repeated_as_it_was(taker: Taker) -> None:
    asker = Asker(taker)
    taker.faults = [Unavailable("away"), Unavailable("away")]
    assert (await asker.send(b"a")).last == 4
    assert taker.requests == [[b"a"]] * 3


async def test_one_that_spoils_the_request_is_found(taker: Taker) -> None:
    asker = Asker(taker)
    taker.poison[b"2"] = InvalidArgument("no", field="commands")
    taker.gate.clear()
    first = asker.send(b"x")
    await asyncio.sleep(0)
    answers = [asker.send(b"%d" % n) for n in range(4)]
    taker.gate.set()
    assert (await first).error is None
    errors = [(await answer).error for answer in answers]
    assert [error and error.code for error in errors] == [None, None, "invalid_argument", None]


async def test_one_that_the_server_fails_at_comes_again_and_then_gives_up(taker: Taker) -> None:
    asker = Asker(taker)
    taker.refused[b"a"] = [Unavailable("later"), Internal("bug")]
    assert (await asker.send(b"a")).error is None
    taker.refused[b"b"] = [Internal("bug")] * 100
    error = (await asker.send(b"b")).error
    assert error is not None
    assert error.code == "internal"
    assert len(taker.requests) < 15


async def test_a_lost_lease_is_an_answer(taker: Taker) -> None:
    asker = Asker(taker)
    taker.refused[b"a"] = [LeaseLost("gone")]
    error = (await asker.send(b"a")).error
    assert error is not None
    assert error.code == "lease_lost"


async def test_an_append_whose_lease_a_heartbeat_found_lost_is_not_repeated(taker: Taker) -> None:
    asker = Asker(taker)
    taker.faults = [Unavailable("away")] * 1000
    answer = asker.send(b"a")
    await asyncio.sleep(0.01)
    asker.runs[b"a"].stop("lost")
    error = (await answer).error
    assert error is not None
    assert error.code == "lease_lost"
    assert taker.faults
