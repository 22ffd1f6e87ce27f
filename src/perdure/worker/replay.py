"""Replays histories against workflow code: is new code fit to go on with the runs of the old one? (RPLY-38, RPLY-48)

Replayer().replay("order.json").check()  # in a test: raises where the code differs
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.events import (
    Event,
    WorkflowExecutionStarted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
    WorkflowTaskStarted,
)
from perdure.core.model import Payloads
from perdure.sdk.definition import WORKFLOWS, Workflow
from perdure.sdk.history import WorkflowHistory, completed
from perdure.sdk.workflow_errors import NonDeterminismError
from perdure.worker.async_code import AsyncCode
from perdure.worker.execute import BARE, Environment
from perdure.worker.plain import PlainCode


@dataclass(frozen=True)
class Replayed:
    """What came of a replay. `str` of it is "compatible: ...", or says where the code differs."""

    workflow: Workflow
    history: WorkflowHistory
    environment: Environment
    error: BaseException | None = None  #: a NonDeterminismError, or what else would fail the turn

    @property
    def compatible(self) -> bool:
        return self.error is None

    def check(self) -> Replayed:
        """Raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self

    def query(self, name: str, value: object = None) -> object:
        """Ask the run something, in the state that the history leaves it in."""
        converter = self.environment.converter
        code = self.code()
        code.machine.feed(self.history.events)
        code.machine.results |= self.history.groups
        if isinstance(code, AsyncCode):
            code.run()
        payloads: Payloads = code.query(name, converter.to_payloads(value, "query"))
        return converter.from_payloads(payloads, "answer")

    def code(self) -> AsyncCode | PlainCode:
        """A new run, of the workflow's style."""
        kind = AsyncCode if self.workflow.is_async else PlainCode
        return kind(self.workflow, self.environment, self.history.run_id)

    def __str__(self) -> str:
        what = f"{self.workflow.name} {self.history.workflow_id}, {len(self.history.events)} events"
        if self.error is None:
            return f"compatible: {what}"
        if isinstance(self.error, NonDeterminismError):
            return f"{what}: {self.error}"
        return f"{what}: {''.join(traceback.format_exception_only(self.error)).strip()}"


class Replayer:
    """Replays with these workflows; all of this process by default. `environment` has their converter."""

    def __init__(self, workflows: Mapping[str, Workflow] = WORKFLOWS, environment: Environment = BARE) -> None:
        self._workflows = workflows
        self._environment = environment

    def replay(self, history: WorkflowHistory | str | Path) -> Replayed:
        """A whole history, of an open or a closed run; a path is one of a file that `WorkflowHistory.to_json` or
        `perdure workflows history --json` wrote. NotFound for an unknown workflow, InvalidArgument for what is no
        history."""
        if not isinstance(history, WorkflowHistory):
            history = WorkflowHistory.from_json(Path(history).read_bytes())
        begun: Any = history.events[0].attributes if history.events else None
        if not isinstance(begun, WorkflowExecutionStarted):
            raise InvalidArgument("a history begins with WorkflowExecutionStarted", field="history", limit="all events")
        workflow = self._workflows.get(begun.workflow_type)
        if workflow is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            raise NotFound(f"no workflow is named {begun.workflow_type!r}; there are: {known}")
        if missing := sorted(completed(history.events).keys() - history.groups.keys()):
            text = f"the results of the groups that events {missing} began are not in this history"
            raise InvalidArgument(text, field="groups", limit="all groups that have completed")
        if not _has_run(history.events):
            return Replayed(workflow, history, self._environment)
        code = Replayed(workflow, history, self._environment).code()
        error: BaseException | None = None
        try:
            code.machine.feed(history.events)
            code.machine.results |= history.groups
            code.run()
        except (Exception, NonDeterminismError) as fault:  # noqa: BLE001 - it is what the caller asked for
            error = fault
        if isinstance(code, AsyncCode):
            code.drop()
        return Replayed(workflow, history, self._environment, error)


def _has_run(events: Sequence[Event]) -> bool:
    """Whether any code of a run came to something, or is about to; else it was closed, or waits, before its first turn,
    and any code fits. Of a turn that a reset begins again nothing is kept."""
    return isinstance(events[-1].attributes, WorkflowTaskStarted) or any(
        isinstance(event.attributes, WorkflowTaskCompleted)
        and not (following and isinstance(following[0].attributes, WorkflowTaskFailed))
        for event, following in ((event, events[index : index + 1]) for index, event in enumerate(events, 1))
    )
