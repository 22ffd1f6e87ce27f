"""Tasks that a test makes are forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.sdk.definition import WORKFLOWS
from perdure.worker import appends, report, worker
from tests.sdk.conftest import own_tasks  # noqa: F401  # a fixture
from tests.worker.fake import FakeService
from tests.worker.fake_server import FakeServer


@pytest.fixture
async def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def server() -> FakeServer:
    return FakeServer()


@pytest.fixture(autouse=True)
def own_workflows() -> Iterator[None]:
    """Workflows that a test makes are forgotten after it."""
    before = dict(WORKFLOWS)
    yield
    WORKFLOWS.clear()
    WORKFLOWS.update(before)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(report, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(appends, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(worker, "_STOP_SECONDS", 0.05)
