"""Replays histories against workflow code: is new code fit to go on with the runs of the old one? (RPLY-38, RPLY-48)

    Replayer().replay(load("order.json")).check()      # in a test: raises where the code differs

A history in JSON is an object with `events`: a list of id, time (microseconds), name, and the attributes as they are in
core/events.py, bytes in base64. `dump` writes it.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.events import AnyAttributes, Event, WorkflowExecutionStarted, event_name
from perdure.core.model import Payloads
from perdure.sdk.definition import WORKFLOWS, Workflow
from perdure.sdk.workflow_errors import NonDeterminismError
from perdure.worker.async_code import AsyncCode
from perdure.worker.execute import BARE, Environment
from perdure.worker.plain import PlainCode

_encode = msgspec.json.Encoder().encode


class _Line(msgspec.Struct):
    id: int
    time: int
    attributes: AnyAttributes
    name: str = ""  #: for people: the attributes say it by number


class _Document(msgspec.Struct):
    events: list[_Line]


_decode = msgspec.json.Decoder(_Document).decode


def dump(events: Sequence[Event]) -> bytes:
    """A history as JSON."""
    lines = [_Line(event.id, event.time, event.attributes, event_name(event.type)) for event in events]
    return msgspec.json.format(_encode(_Document(lines)), indent=1)


def load(source: str | Path | bytes) -> list[Event]:
    """The events of a JSON file, given its path, or of JSON itself. InvalidArgument for anything else."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        lines = _decode(data).events
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"this is no history: {error}", field="history", limit="JSON with events") from None
    return [Event(line.id, line.time, line.attributes) for line in lines]


@dataclass(frozen=True)
class Replayed:
    """What came of a replay."""

    workflow: Workflow
    workflow_id: str
    events: Sequence[Event]
    environment: Environment
    error: BaseException | None = None  #: a NonDeterminismError, or what else failed the turn

    @property
    def compatible(self) -> bool:
        return self.error is None

    def check(self) -> Replayed:
        """Raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self

    def query(self, name: str, input: Payloads = ()) -> Payloads:
        """Ask the run something, in the state that the history leaves it in."""
        code = code_of(self.workflow, self.environment)
        code.machine.feed(self.events)
        if isinstance(code, AsyncCode):
            code.run()
        return code.query(name, input)

    def __str__(self) -> str:
        """ "compatible", or the exact place of divergence."""
        what = f"{self.workflow.name} {self.workflow_id}, {len(self.events)} events"
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

    def replay(self, history: Sequence[Event] | str | Path | bytes) -> Replayed:
        """A whole history from its first event, of an open or a closed run. Commands that the code issues beyond its
        end are no divergence when the last turn is still in hand. Raises NotFound for an unknown workflow."""
        events = load(history) if isinstance(history, (str, Path, bytes)) else list(history)
        begun: Any = events[0].attributes if events else None
        if not isinstance(begun, WorkflowExecutionStarted):
            raise InvalidArgument("a history begins with WorkflowExecutionStarted", field="history", limit="all events")
        workflow = self._workflows.get(begun.workflow_type)
        if workflow is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            raise NotFound(f"no workflow is named {begun.workflow_type!r}; there are: {known}")
        code = code_of(workflow, self._environment)
        error: BaseException | None = None
        try:
            code.machine.feed(events)
            code.run()
        except (Exception, NonDeterminismError) as fault:  # noqa: BLE001 - it is what the caller asked for
            error = fault
        return Replayed(workflow, begun.workflow_id, events, self._environment, error)


def code_of(workflow: Workflow, environment: Environment) -> AsyncCode | PlainCode:
    """A new run of a workflow, of its style."""
    return (AsyncCode if workflow.is_async else PlainCode)(workflow, environment)
