"""Tasks that a test makes are forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.sdk.task import REGISTRY


@pytest.fixture(autouse=True)
def own_tasks() -> Iterator[None]:
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)
