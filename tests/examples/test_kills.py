"""The examples survive a kill -9 of their worker at any point (STEP-12, STEP-13, B§20-1, C/F1).

Each scenario runs twice on one server: in a calm, and while worker after worker is killed. Both must end alike and
leave the same effects. An effect may be there more often only where the history says that an attempt was lost.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure import Perdure, WorkflowHandle
from perdure.core.events import ActivityTaskScheduled, ActivityTaskStarted, Event, StepStarted
from perdure.sdk.history import WorkflowHistory
from tests.examples.processes import Processes, until

SEEDS = (1, 2)
KILLS = 3
UNACKNOWLEDGED = 2
"""Deliveries in a row whose receipt was never acknowledged spend no attempt of an activity; a third one does."""


class Scenario(NamedTuple):
    """A workflow of the examples with its input but for the id, and a signal that it has from the beginning."""

    workflow: str
    input: dict[str, Any]
    signal: tuple[str, object] | None = None


SCENARIOS = {
    "an order that is picked up": Scenario("fulfil", {"items": ["kettle", "cup"], "card": "visa"}, ("picked_up", None)),
    "an order that nobody picks up": Scenario(
        "fulfil", {"items": ["lamp"], "card": "visa", "pickup": "1s", "decision": "0.5s"}
    ),
    "an order that the shop keeps": Scenario(
        "fulfil", {"items": ["lamp"], "card": "visa", "pickup": "0.5s"}, ("decision", "keep")
    ),
    "an order whose card is expired": Scenario("fulfil", {"items": ["lamp"], "card": "expired"}),
    "a trip": Scenario("book_trip", {"to": "Oslo"}),
    "a trip without a car": Scenario("book_trip", {"to": "Oslo", "sold_out": "car"}),
    "a customer": Scenario("onboard", {"address": "ann@example.org", "cool_off": "1s"}, ("confirmed", None)),
    "nobody's address": Scenario("onboard", {"address": "cem@example.org", "confirmation": "1s"}),
    "a subscription": Scenario("subscription", {"plan": "small", "months": 30, "month": "50ms"}),
    "a feed": Scenario("poll_deliveries", {"pause": "0.1s"}),
    "an export": Scenario("export_account", {"parts": 40, "seconds_per_part": 0.04}),
    "a backfill": Scenario("backfill", {"rows": 40_000, "chunk": 1_000, "batch": 500}),
    "an agent that may": Scenario("agent", {"text": "buy a kettle", "seconds_per_word": 0.02}, ("decision", "yes")),
    "an agent that may not": Scenario("agent", {"text": "", "seconds_per_word": 0.01}, ("decision", "no")),
}
_NAMES = list(SCENARIOS)


class Outcome(NamedTuple):
    """How a scenario ended, without its id: with a result or an error, and its effects with their numbers."""

    end: str
    effects: Counter[str]


class Round:
    """All scenarios at once, each with an id that begins with `prefix`."""

    def __init__(self, app: Perdure, prefix: str, effects: Path) -> None:
        self.app = app
        self._prefix = prefix
        self._effects = effects
        self.runs = {name: self._start(name, scenario) for name, scenario in SCENARIOS.items()}

    def _id(self, name: str) -> str:
        return f"{self._prefix}-{_NAMES.index(name)}"

    def _start(self, name: str, scenario: Scenario) -> WorkflowHandle:
        id = self._id(name)
        given = {"id": id, **scenario.input}
        if scenario.signal is None:
            return self.app.start_workflow(scenario.workflow, given, id=id)
        signal, value = scenario.signal
        return self.app.signal_with_start(scenario.workflow, given, id=id, signal=signal, signal_input=value)

    def lines(self) -> list[str]:
        if not self._effects.exists():
            return []
        return [line for line in self._effects.read_text().splitlines() if line.startswith(f"{self._prefix}-")]

    def closed(self) -> bool:
        page = self.app.list_workflows(status="RUNNING", limit=100)
        return not page.workflows

    def outcome(self, name: str) -> Outcome:
        try:
            end = repr(self.runs[name].result(timeout=0))
        except Exception as error:  # noqa: BLE001 - it is how the scenario ended, and is compared
            end = repr(error)
        id = self._id(name)
        effects = Counter(line.replace(id, "ID") for line in self.lines() if line.startswith(f"{id} "))
        return Outcome(end.replace(id, "ID"), effects)

    def attempts(self, name: str) -> Counter[str]:
        """By the name of a step or an activity, the most attempts that one of that name may have had."""
        most: Counter[str] = Counter()
        for history in self.histories(name):
            for step, attempt in _attempts(history.events):
                most[step] = max(most[step], attempt)
        return most

    def histories(self, name: str) -> list[WorkflowHistory]:
        """Of all runs of the scenario's workflow id."""
        runs = self.app.list_workflows(workflow_id=self._id(name), limit=100).workflows
        return [self.app.get_workflow_handle(run.workflow_id, run.run_id).history() for run in runs]

    def events(self) -> list[Event]:
        return [event for name in SCENARIOS for history in self.histories(name) for event in history.events]


def _attempts(events: list[Event]) -> Iterator[tuple[str, int]]:
    scheduled = {event.id: event.attributes for event in events}
    for event in events:
        match event.attributes:
            case StepStarted(name=name, attempt=attempt):
                yield name.partition("[")[0], attempt
            case ActivityTaskStarted(scheduled_event_id=id, attempt=attempt):
                activity = scheduled[id]
                assert isinstance(activity, ActivityTaskScheduled)
                yield activity.activity_type, attempt + UNACKNOWLEDGED


_BEGUN = (StepStarted, ActivityTaskStarted)


@pytest.mark.parametrize("seed", SEEDS)
def test_examples_survive_kills(seed: int, tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    try:
        url = processes.server()
        with Perdure(url) as app:
            calm = Round(app, "calm", tmp_path / "effects.txt")
            worker = processes.worker(url)
            until(calm.closed, "all runs close in a calm", 40)
            processes.kill(worker)
            wild = Round(app, "wild", tmp_path / "effects.txt")
            _kill_workers(processes, url, wild, random.Random(seed))
            for name in SCENARIOS:
                _compare(calm, wild, name)
            assert _repeats(calm) == 0
            assert _repeats(wild) > 0, "the kills have hit nothing"
    except AssertionError as error:
        error.add_note(processes.output())
        raise
    finally:
        processes.kill_all()


def _kill_workers(processes: Processes, url: str, wild: Round, source: random.Random) -> None:
    """Each after a few more effects, between two of them."""
    for _ in range(KILLS):
        worker = processes.worker(url)
        enough = len(wild.lines()) + source.randint(1, 30)
        until(lambda: len(wild.lines()) >= enough or wild.closed(), "effects", 40)  # noqa: B023 - called here only
        time.sleep(source.uniform(0, 0.05))
        processes.kill(worker)
    processes.worker(url)
    until(wild.closed, "all runs close", 40)


def _compare(calm: Round, wild: Round, name: str) -> None:
    quiet, hit, attempts = calm.outcome(name), wild.outcome(name), wild.attempts(name)
    assert hit.end == quiet.end, name
    assert set(hit.effects) == set(quiet.effects), f"{name}: each effect is there, and no other"
    assert set(quiet.effects.values()) <= {1}, name
    for effect, times in hit.effects.items():
        step = effect.removeprefix("ID ").partition(":")[0]
        assert times <= attempts[step], f"{name}: {effect} is there {times} times: {attempts}"


def _repeats(of: Round) -> int:
    """Attempts that followed a lost one."""
    return sum(event.attributes.attempt > 1 for event in of.events() if isinstance(event.attributes, _BEGUN))
