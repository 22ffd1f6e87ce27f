"""The thread in which workflow code runs, and its watchdog."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from perdure.core.model import Failure
from perdure.worker.activations import Activations
from perdure.worker.watchdog import Watchdog


class Doing:
    """An activation that calls `work`."""

    def __init__(self, work: Callable[[Doing], object]) -> None:
        self._work = work
        self.gone = 0
        self.result: object = None
        self.fault: Failure | None = None
        self.over = asyncio.Event()
        self.thread = ""

    def work(self) -> None:
        self.thread = threading.current_thread().name
        self.result = self._work(self)

    def done(self, fault: Failure | None) -> None:
        self.fault = fault
        self.over.set()

    def progress(self) -> int:
        return self.gone


async def test_many_activations_come_back_together() -> None:
    activations = Activations(Watchdog())
    doing = [Doing(lambda _, n=n: n) for n in range(100)]  # type: ignore[misc]
    for one in doing:
        activations.add(one)
    for one in doing:
        await one.over.wait()
    assert [one.result for one in doing] == list(range(100))
    assert {one.thread for one in doing} == {"perdure-workflows"}
    activations.close()


async def test_code_that_hangs_is_given_up_with_its_place() -> None:
    """RPLY: file, line and text of where it hangs; what was given behind it runs in a new thread."""
    gate = threading.Event()

    def hang(_: Doing) -> None:
        while not gate.is_set():
            pass

    activations = Activations(Watchdog(0.2))
    hanging, after = Doing(hang), Doing(lambda _: "fine")
    activations.add(hanging)
    activations.add(after)
    async with asyncio.timeout(20):
        await hanging.over.wait()
        await after.over.wait()
    assert hanging.fault is not None
    assert hanging.fault.code == "deadlock"
    assert f"{__file__}:" in hanging.fault.message
    assert "while not gate.is_set()" in hanging.fault.message or "(pass)" in hanging.fault.message
    assert "in hang" in hanging.fault.message
    assert "in hang" in hanging.fault.stack
    assert (after.result, after.fault) == ("fine", None)
    activations.close()


async def test_a_thread_that_spins_is_ended() -> None:
    """Else every try of a faulty workflow would leave a thread that takes the processor for ever."""
    spinning: list[threading.Thread] = []

    def spin(_: Doing) -> None:
        spinning.append(threading.current_thread())
        while True:
            pass

    activations = Activations(Watchdog(0.1))
    doing = Doing(spin)
    activations.add(doing)
    await doing.over.wait()
    await asyncio.to_thread(spinning[0].join, 20)
    assert not spinning[0].is_alive()
    activations.close()


async def test_many_together_are_no_deadlock() -> None:
    """B109: each of a storm of replays has the whole limit."""
    activations = Activations(Watchdog(0.3))
    doing = [Doing(lambda _: time.sleep(0.1)) for _ in range(8)]
    for one in doing:
        activations.add(one)
    for one in doing:
        await one.over.wait()
    assert [one.fault for one in doing] == [None] * 8
    activations.close()


async def test_a_long_replay_that_gets_on_is_no_deadlock() -> None:
    def replay(doing: Doing) -> None:
        for _ in range(8):
            time.sleep(0.1)
            doing.gone += 1

    activations = Activations(Watchdog(0.3))
    doing = Doing(replay)
    activations.add(doing)
    await doing.over.wait()
    assert doing.fault is None
    activations.close()
