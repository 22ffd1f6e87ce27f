"""Draws docs/states.md from the table of moves, so that picture and program cannot disagree.

    python scripts/state_diagram.py            writes docs/states.md
    python scripts/state_diagram.py --check    exit status 1 when the file is not up to date

The sentence for a cause is the comment beside it in core/states.py; the one for a state is in STATES below.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

from perdure.core.states import MOVES, Cause, State, is_closed, job_state

TARGET = Path(__file__).parents[1] / "docs" / "states.md"

STATES = {
    State.ENQUEUED: "It has a place in its queue, or waits for its start time to get one.",
    State.LEASED: "One worker holds it; each write of that worker carries the lease.",
    State.WAITING: "It waits for children or messages and holds no worker.",
    State.RETRY_WAIT: "An attempt failed; the back-off is running and another attempt follows.",
    State.SUCCEEDED: "A worker reported a result, and the result is stored.",
    State.FAILED: "The last attempt failed, or no time was left for another one; the failure is stored.",
    State.CANCELED: "It was asked to stop, and nothing runs it any more.",
    State.EXPIRED: "It waited longer than it was allowed to and never started.",
    State.TERMINATED: "An operator ended it without asking its code.",
    State.TIMED_OUT: "The run took longer than it was allowed to.",
    State.CONTINUED_AS_NEW: "The run ended and handed over to a new run of the same workflow.",
}

HEADER = """# States of a task

<!-- Drawn by scripts/state_diagram.py from core/states.py. Edit those, not this file. -->

Every legal move is in one table, `MOVES` in [core/states.py](../src/perdure/core/states.py). A move that is not there
is refused with an error and changes nothing. Closed states are final.
"""


def causes() -> dict[Cause, str]:
    """The sentence of each cause, from its comment."""
    found = dict(re.findall(r"^ +([A-Z_]+) = \d+  #: (.+)$", inspect.getsource(Cause), re.MULTILINE))
    return {cause: found[cause.name] for cause in Cause}


def drawn() -> list[State]:
    """The states that some move leads to or from."""
    reached = {State.ENQUEUED, *(state for state, _ in MOVES), *MOVES.values()}
    return [state for state in State if state in reached]


def diagram() -> str:
    """The mermaid text. Moves between the same two states share an arrow."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, cause), to in MOVES.items():
        arrows.setdefault((state, to), []).append(cause.name.lower())
    lines = ["stateDiagram-v2", "    [*] --> ENQUEUED: enqueue"]
    lines += [f"    {state.name} --> {to.name}: {', '.join(names)}" for (state, to), names in arrows.items()]
    lines += [f"    {state.name} --> [*]" for state in drawn() if is_closed(state)]
    return "\n".join(lines)


def page() -> str:
    """The whole file."""
    parts = [HEADER, f"```mermaid\n{diagram()}\n```\n", "## States\n"]
    parts.append("| state | seen as a job | meaning |\n| --- | --- | --- |")
    for state in drawn():
        parts.append(f"| {state.name} | {job_state(state, False)} | {STATES[state]} |")
    parts.append("\nAn open task that was asked to cancel is seen as CANCELLING.\n\n## Causes\n")
    parts.append("| cause | why | moves |\n| --- | --- | --- |")
    for cause, why in causes().items():
        moves = [f"{state.name} to {to.name}" for (state, by), to in MOVES.items() if by == cause]
        parts.append(f"| {cause.name} | {why} | {'<br>'.join(moves)} |")
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == page():
        return 0
    print(f"{TARGET.name} is not what the table of moves says; run python scripts/state_diagram.py")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
