"""A service and a server that are stand-ins, and a worker without pauses."""

from __future__ import annotations

import pytest

from perdure.worker import appends, report, worker
from tests.worker.fake import FakeService
from tests.worker.fake_server import FakeServer


@pytest.fixture
async def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(report, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(appends, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(worker, "_STOP_SECONDS", 0.05)
