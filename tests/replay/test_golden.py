"""Recorded histories replay with today's code (RPLY-48, DEPL-10)."""

from __future__ import annotations

from hashlib import sha256

import pytest

from perdure.worker.replay import Replayer
from tests.replay.golden import FOLDER, RECORDINGS

RECORDED = {
    "canceled": "9176168323d532e1",
    "cart": "9c9ccbb888321cc5",
    "fan": "306d3e86b31d6e2a",
    "order": "15e2f0b711648453",
    "order_open": "311784b0db45022a",
    "parent": "6c51c55c828eb091",
    "patched": "715d1b2236efd3a1",
    "patched_before": "382bea9bbc4fd7d4",
    "poll": "39e92d9a37ae5509",
    "race": "34ff15045fb95564",
    "trip": "e5155f480721d281",
}
"""Digests of the files. One that was recorded anew, with later code, proves nothing: add others instead."""


def test_every_history_has_its_code() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(RECORDINGS)
    assert len(RECORDINGS) >= 9


def test_no_history_was_recorded_anew() -> None:
    assert {file.stem: sha256(file.read_bytes()).hexdigest()[:16] for file in FOLDER.glob("*.json")} == RECORDED


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_history_replays(name: str) -> None:
    _, codes = RECORDINGS[name]
    for workflow in codes():
        Replayer({workflow.name: workflow}).replay(FOLDER / f"{name}.json").check()
