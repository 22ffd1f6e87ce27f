"""Recorded histories replay with today's code (RPLY-48, DEPL-10)."""

from __future__ import annotations

import pytest

from perdure.worker.replay import Replayer
from tests.replay.golden import FOLDER, RECORDINGS


def test_every_history_has_its_code() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(RECORDINGS)
    assert len(RECORDINGS) >= 9


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_history_replays(name: str) -> None:
    _, codes = RECORDINGS[name]
    for workflow in codes():
        Replayer({workflow.name: workflow}).replay(FOLDER / f"{name}.json").check()
