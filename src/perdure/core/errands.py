"""What one run has for another: a signal, or the request to cancel, on its way as a row (SIG-01)."""

from __future__ import annotations

from typing import Any

from perdure.core import runs
from perdure.core import turn_commands as t
from perdure.core.effects import Effect
from perdure.core.events import (
    AnyAttributes,
    ExternalWorkflowExecutionCancelRequested,
    ExternalWorkflowExecutionSignaled,
    RequestCancelExternalWorkflowExecutionFailed,
    SignalExternalWorkflowExecutionFailed,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
)
from perdure.core.ids import Mint
from perdure.core.model import Task, unpack
from perdure.core.rounds import Rounds
from perdure.core.run import Run
from perdure.core.states import is_closed

Errand = t.SignalExternalWorkflow | t.CancelExternalWorkflow


def errand_of(message: Task) -> Errand:
    """What a row of kind MESSAGE carries."""
    errand: Errand = unpack(message.checkpoint or b"", Errand)
    return errand


def arrive(
    errand: Errand, message: Task, sender: Run | None, target: Task | None, run: Run | None,
    now: int, mint: Mint, rounds: Rounds,
) -> tuple[list[Effect], AnyAttributes]:  # fmt: skip
    """What it does to its target, and what the sender hears. A target of None, of another namespace or closed cannot be
    reached."""
    began = message.parent_event_id or 0
    back: dict[str, Any] = {"workflow_id": errand.workflow_id, "initiated_event_id": began}
    signals = isinstance(errand, t.SignalExternalWorkflow)
    if target is None or run is None or target.namespace != message.namespace or is_closed(target.state):
        missed = SignalExternalWorkflowExecutionFailed if signals else RequestCancelExternalWorkflowExecutionFailed
        return [], missed(**back)
    who: dict[str, Any] = {
        "external_workflow_id": sender.workflow_id if sender else "",
        "external_run_id": message.parent_run_id or b"",
        "external_initiated_event_id": began,
    }
    if isinstance(errand, t.SignalExternalWorkflow):
        signal = WorkflowExecutionSignaled(
            signal_name=errand.signal_name, input=errand.input, header=errand.header, **who
        )
        return runs.post(target, run, [signal], now, rounds), ExternalWorkflowExecutionSignaled(**back)
    request = WorkflowExecutionCancelRequested(cause=errand.reason, **who)
    effects = runs.cancel(target, run, request, now, mint, rounds)
    return effects, ExternalWorkflowExecutionCancelRequested(**back)
