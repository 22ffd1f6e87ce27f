"""The mutants by name, and how one is applied, looked for and noted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.sim.plan import draw
from tests.sim.world import Result, run

_NOTES = Path(__file__).parents[1] / "found_at.txt"
FOUND_AT = {name: int(seed) for seed, _, name in (line.partition(" ") for line in _NOTES.read_text().splitlines())}
"""The seed at which each mutant was found last; `python -m tests.sim mutants --note` writes them down."""

MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
"""By name."""

Changes = Callable[[ExitStack], None]


def mutant(name: str) -> Callable[[Changes], Changes]:
    """Registers a function that makes its changes by what it enters into a stack."""

    def register(changes: Changes) -> Changes:
        @contextmanager
        def applied() -> Iterator[None]:
            with ExitStack() as stack:
                changes(stack)
                yield

        assert name not in MUTANTS, name
        MUTANTS[name] = applied
        return changes

    return register


def change(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Put `value` in the place of an attribute until the stack is left."""
    stack.enter_context(patch.object(owner, name, value))


def likely(name: str, most: int) -> list[int]:
    """The first `most` seeds, beginning with the one that found this mutant last."""
    noted = FOUND_AT.get(name)
    seeds = range(1, most + 1)
    return [*seeds] if noted is None else [noted, *(seed for seed in seeds if seed != noted)]


def note(found: dict[str, int]) -> None:
    """Write down at which seed each was found."""
    lines = [f"{seed} {name}\n" for name, seed in (FOUND_AT | found).items() if name in MUTANTS]
    _NOTES.write_text("".join(lines))


def find(name: str, seeds: Iterable[int]) -> tuple[int, Result | None]:
    """How many seeds were run until one found the mistake, and what it broke; None if none did."""
    count = 0
    for seed in seeds:
        count += 1
        with MUTANTS[name]():
            result = run(draw(seed))
        if result.rule:
            return count, result
    return count, None
