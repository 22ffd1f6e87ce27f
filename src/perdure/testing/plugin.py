"""Fixtures for pytest, which finds them by the entry point that this package declares.

perdure         an Environment (see `jumping`), new for each test
perdure_app     its Perdure
perdure_apps    override this one: the Perdure and AsyncPerdure objects of the application, to be sent there too
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # pytest loads this file in projects, too, that know nothing of it
    from perdure.app import AsyncPerdure, Perdure
    from perdure.testing.environment import Environment


@pytest.fixture
def perdure_apps() -> Sequence[Perdure | AsyncPerdure]:
    """None, unless a project says otherwise in its conftest.py."""
    return ()


@pytest.fixture
def perdure(perdure_apps: Sequence[Perdure | AsyncPerdure]) -> Iterator[Environment]:
    """Jobs in this process, on a clock that jumps."""
    from perdure.testing.environment import jumping

    with jumping(*perdure_apps) as environment:
        yield environment


@pytest.fixture
def perdure_app(perdure: Environment) -> Perdure:
    """A client of the `perdure` environment."""
    return perdure.app
