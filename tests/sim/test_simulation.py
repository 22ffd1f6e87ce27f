"""A fixed number of seeds with every `make test`; `make sim SEEDS=500` runs more. And the simulation itself: it replays
bit for bit, it shrinks what it finds, and it finds three of the mutants, other ones each day."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.sim.__main__ import replay, run_seeds
from tests.sim.mutants import FOUND_AT, MUTANTS, find, likely
from tests.sim.plan import FAULTS, Plan, draw, parse, text
from tests.sim.shrink import shrink
from tests.sim.world import Result, run

SEEDS = 300
TOGETHER = 10  #: seeds of one test
TODAY = datetime.now(UTC).toordinal()
CHEAP = [name for name in MUTANTS if FOUND_AT.get(name, 1_000) <= 150]
ROTATING = [CHEAP[(3 * TODAY + number) % len(CHEAP)] for number in range(3)]


@pytest.mark.parametrize("first", range(1, SEEDS + 1, TOGETHER))
def test_every_invariant_holds(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        result = run(draw(seed))
        assert not result.rule, f"{result.detail}\nreplay: python -m tests.sim replay {seed}"


@pytest.mark.parametrize("seed", [3, 7, 32])
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


def test_another_seed_is_another_run() -> None:
    plan = draw(3)
    assert run(plan).digest != run(replace(plan, seed=4)).digest


@pytest.mark.parametrize("name", range(3), ids=["first", "second", "third"])
def test_a_mistake_is_found(name: int) -> None:
    """Three of the mutants of `make sim-mutants`."""
    mutant = ROTATING[name]
    seeds, found = find(mutant, likely(mutant, 100))
    assert found is not None, f"{mutant}: not found in {seeds} seeds"


def test_plans_are_written_as_they_are_read() -> None:
    for seed in range(1, 50):
        plan = draw(seed)
        assert parse(text(plan)) == plan
    changed = replace(draw(1), faults=("cut", "freeze worker"), tasks=2, shuffle=True, lease=3.0, posting=True)
    assert parse(text(changed)) == changed
    assert parse("1/faults=" + "+".join(FAULTS).replace(" ", "_") + "/off=cut_all+clock").faults == tuple(
        fault for fault in FAULTS if fault not in ("cut all", "clock")
    )


def test_a_finding_is_made_smaller() -> None:
    """Fewer faults, fewer tasks, fewer processes, while the same rule is broken."""

    def broken(plan: Plan) -> Result:
        rule = "rule" if "cut" in plan.faults and plan.tasks >= 3 else ""
        return Result(plan, rule=rule)

    plan = replace(draw(1), servers=3, workers=3, clients=2, tasks=30, faults=FAULTS)
    smallest = shrink(broken(plan), broken).plan
    assert (smallest.faults, smallest.tasks) == (("cut",), 3)
    assert (smallest.servers, smallest.workers, smallest.clients) == (1, 1, 1)


def test_the_command_fails_with_one_line_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    """`make sim`: exit status 1, a smaller run than the seed's, and the same rule broken by the line alone."""
    with MUTANTS["answers before the commit"]():
        assert run_seeds(1, 3) == 1
        said = capsys.readouterr().out.splitlines()
        [line] = [line for line in said if line.startswith("replay: ")]
        [broken] = [line for line in said if line.startswith("FAILED ")]
        plan = line.rpartition(" ")[2]
        assert parse(plan).tasks < draw(1).tasks
        assert replay(plan) == 1
        assert broken in capsys.readouterr().out.splitlines()
    assert replay(plan) == 0, "without the mistake that run is a good one"
