"""Workflows of these tests are forgotten after each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.sdk.task import REGISTRY
from perdure.sdk.workflow import WORKFLOWS


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    tasks, workflows = dict(REGISTRY), dict(WORKFLOWS)
    yield
    for registry, before in ((REGISTRY, tasks), (WORKFLOWS, workflows)):
        registry.clear()  # type: ignore[attr-defined]
        registry.update(before)  # type: ignore[attr-defined]
