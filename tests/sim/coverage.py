"""What the seeds reach: every command that an engine answered and every event of a history, and during which kinds of
faults it happened. A gap is a place where nothing is tried."""

from __future__ import annotations

from collections import Counter

from tests.sim.plan import FAULTS, OWN, draw
from tests.sim.world import run

KINDS = (*FAULTS, *OWN)


def reached(seeds: range) -> Counter[str]:
    """How often each thing happened, and ("name x fault") how often during each kind of fault."""
    happened: Counter[str] = Counter()
    for seed in seeds:
        happened.update(run(draw(seed)).counts)
    return happened


def table(happened: Counter[str]) -> list[str]:
    """A line for each thing, the rarest first: how often, and the faults during which it never happened."""
    names = {pair.rpartition(" x ")[0] for pair in happened if " x " in pair}
    lines = []
    for name in sorted(names, key=lambda name: (happened[name], name)):
        missing = [kind for kind in KINDS if not happened[f"{name} x {kind}"]]
        lines.append(f"{name:<62} {happened[name]:>8}  {', '.join(missing) and 'never during: ' + ', '.join(missing)}")
    return [line.rstrip() for line in lines]
