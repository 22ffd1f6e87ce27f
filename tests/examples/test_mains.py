"""Each workflow example does what it says when it is run as a script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.processes import EXAMPLES, environment

PRINTED = {
    "order": ["order-1 picked up", "order-2 refunded after it was escalated"],
    "travel": ["trip-1 booked", "trip-2 cancelled", "cancel_car cancel_hotel cancel_flight"],
    "onboarding": ["ann active", "bob withdrawn", "cem not confirmed"],
    "subscription": ["30 months cost 150", "from now on 12", "ended after 1 month"],
    "polling": ["booked 17"],
    "export": ["https://example.org/exports/export-1.zip", "so far: part", "cancelled, and removed"],
    "backfill": ["filled 50000 rows"],
    "agent": ["... ", "approve: buy kettle?", "buy: bought", "model: the kettle is on its way"],
}
"""What stands in the output of each, in this order."""


@pytest.mark.parametrize("name", PRINTED)
def test_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rest = done.stdout
    for text in PRINTED[name]:
        assert text in rest, done.stdout + done.stderr
        rest = rest[rest.index(text) + len(text) :]
    effects = (tmp_path / "effects.txt").read_text().splitlines()
    assert len(set(effects)) == len(effects), "nothing was lost, so nothing is there twice"


def test_all_examples_are_run() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")}
    assert scripts - set(PRINTED) == {"outside", "worker"}
