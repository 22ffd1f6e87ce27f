"""An engine over each store, on a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.store.base import Store
from tests.engine.drive import Drive, running
from tests.store.conftest import clock, store  # noqa: F401  # the fixtures of the store tests


@pytest.fixture
async def drive(store: Store) -> AsyncIterator[Drive]:  # noqa: F811
    async with running(store) as driving:
        yield driving
