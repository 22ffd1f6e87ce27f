"""Cold replays: what the history of a run says, against what a worker has in memory of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.core import ids
from perdure.core.events import Event, GroupCompleted, GroupStarted
from perdure.core.group_events import CallResult
from perdure.sdk.workflow_errors import NonDeterminismError
from perdure.worker.async_code import AsyncCode
from perdure.worker.execute import BARE
from perdure.worker.instances import Cached, Instances
from perdure.worker.machine import Machine
from perdure.worker.plain import PlainCode
from tests.sim.pasts import value_of
from tests.sim.reading import short

if TYPE_CHECKING:
    from tests.sim.world import World

OFTEN = 0.5
"""How likely a run in memory is compared after a turn, and a whole history is replayed at the end."""


class SimInstances(Instances):
    """Takes the place of Instances in worker/turns.py: keeps as many runs as the plan says, and looks at each."""

    world: World

    def __init__(self, dropped: Any) -> None:
        super().__init__(dropped, most=self.world.plan.kept)

    def put(self, run_id: str, cached: Cached) -> None:
        self.world.replays.compare(run_id, cached)
        super().put(run_id, cached)


class Replays:
    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.plan.stream("replays")

    def compare(self, run_id: str, warm: Cached) -> None:
        """After a turn: the code in memory is where a replay of the history ends."""
        events = self._world.runs.events_of(ids.parse(run_id))
        if self._chance.random() > OFTEN or not isinstance(warm.instance, AsyncCode):
            return
        if warm.last > len(events):
            self._fail(run_id, f"a worker knows event {warm.last} of {len(events)}")
        cold = self._code(events, run_id)
        assert isinstance(cold, AsyncCode)
        self._run(run_id, cold, events[: warm.last])
        expected, found = _state(cold), _state(warm.instance)
        cold.drop()
        if found != expected:
            self._fail(run_id, f"in memory it is {found}, its history says {expected}")

    def all(self) -> None:
        """At the end: the code fits every history."""
        for run_id, past in self._world.runs.pasts.items():
            if past.has_begun and self._chance.random() < OFTEN:
                text = ids.text(run_id)
                code = self._code(past.events, text)
                self._run(text, code, past.events)
                if isinstance(code, AsyncCode):
                    code.drop()

    def _code(self, events: list[Event], run_id: str) -> AsyncCode | PlainCode:
        begun: Any = events[0].attributes
        workflow = next(each for each in self._world.workflows if each.name == begun.workflow_type)
        return (AsyncCode if workflow.is_async else PlainCode)(workflow, BARE, run_id)

    def _run(self, run_id: str, code: AsyncCode | PlainCode, events: list[Event]) -> None:
        self._world.checker.counts["replays"] += 1
        self._world.steps.replaying = True
        try:
            code.machine.results |= self._results(events)
            code.machine.feed(events)
            code.run()
        except (Exception, NonDeterminismError) as error:  # noqa: BLE001 - whatever it is, a turn would fail so
            self._fail(run_id, repr(error))
        finally:
            self._world.steps.replaying = False

    def _results(self, events: list[Event]) -> dict[int, list[CallResult]]:
        """Of all groups that have completed by these events, by the event that began each."""
        rows = {event.id: event.attributes.task_id for event in events if isinstance(event.attributes, GroupStarted)}
        ends = [event.attributes for event in events if isinstance(event.attributes, GroupCompleted)]
        return {end.started_event_id: self._world.checker.groups.results(rows[end.started_event_id]) for end in ends}

    def _fail(self, run_id: str, detail: str) -> None:
        self._world.checker.fail("replays", f"run {short(ids.parse(run_id))}: {detail}")


def _state(code: AsyncCode) -> dict[str, Any]:
    """What the code shows, and what it waits for."""
    machine: Machine = code.machine
    return {
        "shown": value_of(code.query("state", ())) if machine.activation else None,
        "open": sorted(machine._open),
        "steps": {step_id: step.attempt for step_id, step in sorted(machine._steps.items())},
        "now": machine.now,
        "last": machine.last_event_id,
    }
