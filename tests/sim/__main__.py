"""The simulation from the command line; docs/simulation.md tells how to read what it says.

    python -m tests.sim run --seeds 500 [--from 1]
    python -m tests.sim replay 1234/tasks=3
    python -m tests.sim mutants [--most 300] [--note] [name ...]
    python -m tests.sim coverage [--seeds 300]

The exit status is 1 when an invariant was broken, or when a mutant was not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.coverage import reached, table
from tests.sim.mutants import MUTANTS, find, note
from tests.sim.plan import draw, parse, text
from tests.sim.shrink import shrink
from tests.sim.world import Result, run


def report(result: Result) -> None:
    """A finding: what broke, and the line that replays it."""
    print(f"FAILED {result.detail}")
    print(f"replay: {sys.executable} -m tests.sim replay {text(result.plan)}", flush=True)


def run_seeds(first: int, count: int) -> int:
    """Status 1 at the first seed that fails, after it was made smaller."""
    begun = time.perf_counter()
    happened: Counter[str] = Counter()
    seconds = 0.0
    for seed in range(first, first + count):
        result = run(draw(seed))
        happened.update(result.counts)
        seconds += result.seconds
        if result.rule:
            print(f"seed {seed}: {result.detail}\nmaking it smaller ...", flush=True)
            report(shrink(result, run))
            return 1
    took = time.perf_counter() - begun
    faults = sum(number for name, number in happened.items() if name.startswith("fault "))
    print(
        f"{count} seeds from {first} on held: {seconds / 3600:.1f} virtual hours in {took:.0f} s, "
        f"{happened['Enqueue Enqueued']} tasks, {happened['LEASED']} leases, {faults} faults"
    )
    return 0


def replay(line: str) -> int:
    """One run, with all that happened in it."""
    result = run(parse(line), story=True)
    print("\n".join(result.story))
    print(f"{result.plan}\ndigest {result.digest}, {result.steps} callbacks, {result.seconds:.1f} virtual seconds")
    if result.rule:
        report(result)
        return 1
    print("every invariant held")
    return 0


def run_mutants(names: list[str], most: int, *, noting: bool) -> int:
    """A line for each: its name and how many seeds it took."""
    chosen = [name for name in MUTANTS if not names or any(part in name for part in names)]
    found: dict[str, int] = {}
    for name in chosen:
        begun = time.perf_counter()
        seeds, result = find(name, range(1, most + 1))
        if result is not None:
            found[name] = seeds
        how = "NOT FOUND" if result is None else result.rule
        print(f"{name:<60} {seeds:>4} seeds  {time.perf_counter() - begun:>5.1f} s  {how}", flush=True)
    if noting:
        note(found)
    print(f"mutants: {len(found)} of {len(chosen)} found")
    return 0 if len(found) == len(chosen) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    commands = parser.add_subparsers(dest="command", required=True)
    seeds = commands.add_parser("run", help="run seeds until one fails")
    seeds.add_argument("--seeds", type=int, default=300)
    seeds.add_argument("--from", type=int, default=1, dest="first")
    again = commands.add_parser("replay", help="run one plan and tell all that happens")
    again.add_argument("plan")
    mutants = commands.add_parser("mutants", help="look whether known mistakes are found")
    mutants.add_argument("names", nargs="*")
    mutants.add_argument("--most", type=int, default=300, help="seeds that each may take")
    mutants.add_argument("--note", action="store_true", help="write the seeds down for the tests")
    coverage = commands.add_parser("coverage", help="what happens in these seeds, and during which faults")
    coverage.add_argument("--seeds", type=int, default=300)
    given = parser.parse_args()
    match given.command:
        case "run":
            return run_seeds(given.first, given.seeds)
        case "replay":
            return replay(given.plan)
        case "coverage":
            print("\n".join(table(reached(range(1, given.seeds + 1)))))
            return 0
        case _:
            return run_mutants(given.names, given.most, noting=given.note)


if __name__ == "__main__":
    sys.exit(main())
