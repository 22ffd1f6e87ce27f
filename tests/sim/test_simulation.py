"""A fixed number of seeds with every `make test`; `make sim SEEDS=500` runs more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.sim.mutants import find
from tests.sim.plan import draw
from tests.sim.world import run

SEEDS = 24


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_every_invariant_holds(seed: int) -> None:
    result = run(draw(seed))
    assert not result.rule, f"{result.detail}\nreplay: python -m tests.sim replay {seed}"


@pytest.mark.parametrize("seed", [3, 7])
def test_a_seed_replays_bit_for_bit(seed: int) -> None:
    """In another process, whose sets and dicts of text are in another order."""
    script = f"from tests.sim.plan import draw; from tests.sim.world import run; print(run(draw({seed})).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for salt in ("1", "2")
    }
    assert digests == {run(draw(seed)).digest}


@pytest.mark.parametrize(
    "mutant", ["completions are not fenced", "answers before the commit", "a release spends an attempt"]
)
def test_a_mistake_is_found(mutant: str) -> None:
    """Three of the mutants of `make sim-mutants`."""
    _, found = find(mutant, range(1, 101))
    assert found is not None
    assert found.rule
