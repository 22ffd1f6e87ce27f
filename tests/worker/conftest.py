"""Tasks that a test makes are forgotten after it."""

from __future__ import annotations

import pytest

from perdure.worker import appends, report, worker
from tests.sdk.conftest import own_tasks  # noqa: F401  # a fixture
from tests.worker.fake import FakeService


@pytest.fixture
async def service() -> FakeService:
    return FakeService()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(report, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(appends, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(worker, "_STOP_SECONDS", 0.05)
