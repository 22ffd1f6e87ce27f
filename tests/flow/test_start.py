"""A server that cannot read the limits as it starts hands nothing out until it has."""

from __future__ import annotations

from perdure.store.base import StoreFault
from perdure.store.memory import MemoryStore
from tests.clock import SteppedClock
from tests.engine.drive import running
from tests.flow.limited import poll_all, put


async def test_limits_are_read_before_anything_is_handed_out() -> None:
    """Found by the simulation: a fault in that one read, and nine tasks ran where three may."""
    store = MemoryStore(clock=SteppedClock().now)
    async with running(store) as drive:
        await put(drive, "queue", "default", max_running=2)
        for _ in range(5):
            await drive.enqueue()
    faults = 2
    real = store.limits_version

    async def limits_version() -> tuple[int, int]:
        nonlocal faults
        faults -= 1
        if faults >= 0:
            raise StoreFault("away")
        return await real()

    store.limits_version = limits_version  # type: ignore[method-assign]
    async with running(store, incarnation=2) as drive:
        assert len(await drive.poll(10, wait=10.0)) == 2
        assert await poll_all(drive) == []
    assert faults < 0
