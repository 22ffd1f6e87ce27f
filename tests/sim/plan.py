"""What a seed stands for: how many processes, which faults, how much work. Written as text, so that one line replays
it.

1234                         everything as the seed draws it
1234/tasks=3/off=cut+freeze  the same with three tasks only, and without two kinds of faults
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

FAULTS = (
    "crash server", "crash worker", "crash client", "restart server", "restart worker", "freeze server",
    "freeze worker", "block loop", "cut", "cut all", "deaf", "bad network", "outage", "partial outage", "statements",
    "commits", "slow", "stall", "clock", "hints",
)  # fmt: skip
"""Every kind of fault that is drawn as one of many."""
OWN = ("unheard",)
"""Kinds that are drawn by themselves."""
SILENT = ("outage", "commits", "clock", "hints")
"""Kinds that are no reason for a living worker to lose its work."""
EPOCH = 1_800_000_000
"""The minute in which all clocks begin, in seconds since 1970."""


@dataclass(frozen=True)
class Plan:
    """One run."""

    seed: int
    store: str = "memory"  #: or "sqlite"
    servers: int = 2
    workers: int = 2
    clients: int = 1
    queues: int = 2
    posting: bool = False  #: some workers use no WebSocket
    lease: float = 0.0  #: seconds that all leases live; 0: as each task says
    tasks: int = 12  #: actions of all clients
    chaos: float = 60.0  #: virtual seconds with faults
    every: float = 4.0  #: about the seconds between two faults
    shuffle: bool = False  #: callbacks inside a process in another order, sometimes
    retention: float = 30 * 86_400.0
    key_life: float = 86_400.0
    faults: tuple[str, ...] = ()
    flows: int = 0  #: workflows that clients start
    company: bool = True  #: others tell workflows something; else what each does depends on nobody
    kept: int = 10_000  #: runs that a worker keeps in memory
    schedules: int = 0  #: that clients make
    limits: int = 0  #: slots of each queue; 0: as many as there are
    bulk: int = 0  #: actions on many jobs
    events: int = 0  #: programs that read the feed, and as many webhooks; 0: nothing is recorded

    @property
    def begins(self) -> float:
        """What clocks on the wall show at the start: somewhere within a minute, as cron goes by whole ones."""
        return EPOCH + round(60 * self.stream("clock").random(), 3)

    def stream(self, name: str) -> Random:
        """Chances for one purpose, so that what is left out elsewhere changes none of them."""
        return Random(f"{self.seed}/{name}")


def draw(seed: int) -> Plan:
    """The plan of a seed. Most have a few kinds of faults only: what always happens together hides what it does
    alone."""
    source = Random(f"{seed}/plan")
    kinds = SILENT if source.random() < 0.2 else FAULTS
    count = source.choice((0, 1, 2, 3, 5, 8, len(FAULTS)))
    faults = set(source.sample(kinds, min(count, len(kinds))))
    lease = source.choice((0.0, 0.0, 0.0, 2.0, 4.0))
    if lease:
        faults |= set(source.choice(((), ("stall",), ("freeze worker",), ("freeze worker", "stall"))))
    posting = source.random() < 0.4
    if posting and kinds is FAULTS and source.random() < 0.5:
        faults |= {"bad network"}
    plan = Plan(
        seed,
        store=source.choice(("memory", "memory", "memory", "sqlite")),
        servers=source.choice((1, 1, 2) if posting else (1, 2, 2, 3)),
        workers=source.choice((1, 2, 2, 3)),
        clients=source.choice((1, 2)),
        queues=source.choice((1, 1, 2)),
        posting=posting,
        lease=lease,
        tasks=source.choice((4, 10, 20, 30)),
        chaos=source.choice((20.0, 40.0, 80.0)) * (2 if kinds is SILENT else 1),
        every=source.choice((1.5, 4.0, 10.0)),
        shuffle=source.random() < 0.2,
        retention=source.choice((30 * 86_400.0, 30 * 86_400.0, 40.0)),
        key_life=source.choice((86_400.0, 86_400.0, 20.0)),
        faults=tuple(sorted(faults)),
        flows=source.choice((0, 0, 3, 6, 10)),
        kept=source.choice((10_000, 10_000, 2, 0)),
        schedules=Random(f"{seed}/schedules").choice((0, 0, 0, 0, 1, 2, 4)),
        limits=Random(f"{seed}/limits").choice((0, 0, 0, 0, 0, 3, 6)),
        bulk=Random(f"{seed}/bulk").choice((0, 0, 0, 1, 4)),
        events=Random(f"{seed}/events").choice((0, 0, 0, 0, 0, 1, 3)),
    )
    if kinds is FAULTS and plan.faults and not posting and source.random() < 0.25:
        plan = replace(plan, faults=tuple(sorted({*plan.faults, *OWN})))
    return plan


def parse(text: str) -> Plan:
    """The plan that a line of text stands for."""
    number, *changes = text.split("/")
    plan = draw(int(number))
    kinds: dict[str, Any] = {bool: lambda value: value == "True"}
    for change in changes:
        name, _, value = change.partition("=")
        if name == "off":
            without = set(value.replace("_", " ").split("+"))
            plan = replace(plan, faults=tuple(fault for fault in plan.faults if fault not in without))
        elif name == "faults":
            plan = replace(plan, faults=tuple(filter(None, value.replace("_", " ").split("+"))))
        else:
            kind = type(getattr(plan, name))
            plan = replace(plan, **{name: kinds.get(kind, kind)(value)})
    return plan


def text(plan: Plan) -> str:
    """The shortest line that `parse` reads as this plan."""
    drawn = draw(plan.seed)
    parts = [str(plan.seed)]
    for field in fields(Plan):
        value = getattr(plan, field.name)
        if value != getattr(drawn, field.name):
            shown = "+".join(value).replace(" ", "_") if field.name == "faults" else value
            parts.append(f"{field.name}={shown}")
    return "/".join(parts)
