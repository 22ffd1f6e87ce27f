"""Workflows in the simulation: all that can happen does, and equal inputs give equal histories on both stores."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.sim.plan import draw
from tests.sim.world import World, run

VARYING = {
    "task_id", "run_id", "new_run_id", "identity", "stack", "history_bytes", "first_run_id", "original_run_id",
    "continued_run_id", "parent_run_id", "root_run_id", "root_workflow_id", "parent_workflow_id", "workflow_id",
    "request_id", "last_failure", "task_queue", "retry_in", "start_to_fire",
}  # fmt: skip
"""What differs from run to run, and is no matter of the store."""
FRAMES = ("WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted")


def histories(seed: int, store: str, monkeypatch: pytest.MonkeyPatch) -> dict[Any, list[Any]]:
    """What every run did, by what it is: its events without their frames, and without what varies."""
    worlds: list[World] = []
    begin = World.__init__

    def init(self: World, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        worlds.append(self)

    alone = replace(
        draw(seed), store=store, servers=1, workers=1, clients=1, faults=(), company=False, flows=6, tasks=1, lease=0.0,
        posting=False, shuffle=False, retention=30 * 86_400.0, key_life=86_400.0, kept=10_000,
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(World, "__init__", init)
        result = run(alone)
    assert not result.rule, result.detail
    found: dict[Any, list[Any]] = {}
    for past in worlds[0].runs.pasts.values():
        shown = [_shown(event.attributes) for event in past.events if type(event.attributes).__name__ not in FRAMES]
        found.setdefault(past.input["n"], []).append([each for each in shown if each is not None])
    return {number: sorted(runs, key=repr) for number, runs in sorted(found.items())}


def _shown(attributes: Any) -> Any:
    """An event, without numbers of other events: frames come as messages come."""
    fields = msgspec.to_builtins(attributes, builtin_types=(bytes,))
    kept = {
        name: _payloads(value)
        for name, value in fields.items()
        if name not in VARYING and not name.endswith("event_id")
    }
    return type(attributes).__name__, sorted(kept.items(), key=repr)


def _payloads(value: Any) -> Any:
    """Failures without the stack, and values without what was read from a clock."""
    if isinstance(value, dict):
        return {name: _payloads(inner) for name, inner in value.items() if name not in VARYING}
    if isinstance(value, (list, tuple)):
        return [_payloads(inner) for inner in value]
    return len(value) > 40 if isinstance(value, bytes) else value


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_equal_inputs_give_equal_histories_on_both_stores(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """RPLY-01: where nothing fails and nobody interferes, the store decides nothing."""
    memory, sqlite = (histories(seed, store, monkeypatch) for store in ("memory", "sqlite"))
    assert memory.keys() == sqlite.keys()
    for number, runs in memory.items():
        for ours, theirs in zip(runs, sqlite[number], strict=True):
            assert ours == theirs, f"workflow {number}"


def test_the_workload_does_everything() -> None:
    """Every kind of event comes in some run."""
    seen: Counter[str] = Counter()
    for seed in range(1, 21):
        seen.update(run(draw(seed)).counts)
    for name in (
        "StepCompleted", "StepFailed", "TimerFired", "TimerCanceled", "ActivityTaskCompleted", "ActivityTaskFailed",
        "ActivityTaskTimedOut", "ActivityTaskCanceled", "WorkflowExecutionSignaled", "WorkflowExecutionUpdateCompleted",
        "ExternalWorkflowExecutionSignaled", "SignalExternalWorkflowExecutionFailed",
        "ChildWorkflowExecutionCompleted", "ChildWorkflowExecutionFailed", "WorkflowExecutionCanceled",
        "WorkflowExecutionContinuedAsNew", "WorkflowExecutionFailed", "WorkflowExecutionTimedOut",
        "WorkflowExecutionTerminated", "WorkflowTaskFailed", "MarkerRecorded", "GroupStarted", "GroupCompleted",
        "GroupFailed", "GroupCancelRequested",
    ):  # fmt: skip
        assert seen[f"event {name}"], name
    assert seen["replays"] > 100
    for name in ("call", "event read", "event sent"):
        assert seen[name] > 100, name
