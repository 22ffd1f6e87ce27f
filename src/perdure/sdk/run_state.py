"""What `ctx` of a workflow keeps for its run, and what the drivers of both styles fill in."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from random import Random
from typing import Any

from perdure.core.errors import InvalidArgument
from perdure.core.events import Event, WorkflowExecutionCancelRequested, WorkflowExecutionStarted
from perdure.core.group_events import CallResult
from perdure.core.model import Payloads
from perdure.core.turn_commands import TurnCommand
from perdure.sdk.converter import PLAIN, Converter
from perdure.sdk.handlers import Ended, Handlers
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.operations import Operation
from perdure.sdk.steps import StepCall
from perdure.sdk.waiting import Commands, Pending, Wait
from perdure.sdk.workflow_info import Info

RESERVED = "step:"
"""How the names of timers must not begin: those between the attempts of steps do."""


class RunState(ABC):
    """The part of `ctx` that is not for applications."""

    info: Info

    def __init__(self, machine: Commands, own_payload: Hint = ANY, converter: Converter = PLAIN) -> None:
        self._machine = machine
        self.own_payload = own_payload  #: what the workflow itself takes
        self.converter = converter
        self.handlers = Handlers(self, self._spawn, self._failed)
        self.step_calls: dict[int, StepCall] = {}  #: of steps that have not ended, by step id
        self.memo_payloads: dict[str, Payloads] = {}
        self.search_attributes: dict[str, Any] = {}
        self.sagas: Counter[str] = Counter()  #: how many owe what (core/compensations.py)
        self.cancel_requested = False
        self.logger = _Logger(self)
        self._random = Random()
        self._counts: Counter[str] = Counter()
        self._versions: dict[str, int] = {}
        self._conditions: list[tuple[Callable[[], object], Wait]] = []
        self._shields = 0
        self._cancel_waits = False

    def begin(self, event: Event, run_id: str) -> Payloads:
        """The run's first event; its input."""
        begun = event.attributes
        assert isinstance(begun, WorkflowExecutionStarted)
        last_result = self.converter.from_payloads(begun.last_result, "last_result") if begun.last_result else None
        self.info = Info.of(event, run_id, last_result)
        self.memo_payloads = dict(begun.memo)
        self.search_attributes = dict(begun.search_attributes)
        self._random.seed(begun.original_run_id or run_id.encode())
        return begun.input

    def let_go(self) -> None:
        """The run is over here. What it consists of refers to each other in circles: cut, it is gone at once, and not
        when the garbage collector looks, which is work for each object of it."""
        del self.handlers, self.logger

    # ----------------------------------------------------------------------------------------------- for the driver
    @abstractmethod
    def _wait(self, operation: Operation[Any]) -> Any:
        """Run an operation: its value in plain code, something that gives it when awaited in async code."""

    @abstractmethod
    def _spawn(self, function: Callable[..., Any], arguments: tuple[Any, ...], ended: Ended) -> None:
        """Call a handler. An exception that it raises is for `ended`."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """A signal handler raised `error`: the run ends with it once the code waits."""

    @abstractmethod
    def _deliver_cancel(self) -> None:
        """Raise a cancel in the code where it waits, or will wait next."""

    def request_cancel(self, event: Event) -> None:
        """Later requests change nothing (CANC-12)."""
        assert isinstance(event.attributes, WorkflowExecutionCancelRequested)
        if not self.cancel_requested:
            self.cancel_requested = True
            self._cancel_waits = self._shields > 0
            if not self._cancel_waits:
                self._deliver_cancel()

    def check_conditions(self) -> bool:
        """The code waits: see which of its conditions hold now. True when some do, so that it has to run again."""
        if not self._conditions:
            return False
        met = False
        left = []
        for condition, wait in self._conditions:
            if not wait.done and not self._holds(condition, wait):
                left.append((condition, wait))
            else:
                met = True
        self._conditions = left
        return met

    def _holds(self, condition: Callable[[], object], wait: Wait) -> bool:
        try:
            with self.reading("a condition"):
                if condition():
                    wait.finish(True)
        except Exception as error:  # noqa: BLE001 - the code's own; it is raised where the code waits for it
            wait.finish(error)
        return wait.done

    # --------------------------------------------------------------------------------------------- for operations
    def issue(self, command: TurnCommand) -> Pending:
        return self._machine.issue(command)

    def recorded_next(self) -> Any:
        """On replay: the attributes of the event that the next command has to become."""
        return self._machine.recorded_next()

    def group_results(self, event_id: int) -> list[CallResult]:
        """Of a group that has completed and began with this event; once, because they may be many."""
        return self._machine.results.pop(event_id)

    @property
    def activation(self) -> int:
        return self._machine.activation

    @property
    def is_replaying(self) -> bool:
        """Whether the code is repeating what the history has. For logs and the like; never decide by it."""
        return self._machine.replaying

    def number(self, what: str) -> int:
        """Counts from 1, for each `what`."""
        self._counts[what] += 1
        return self._counts[what]

    def timer_id(self, name: str) -> str:
        """InvalidArgument for a name that is reserved."""
        if not name:
            return str(self.number("timer"))
        if name.startswith(RESERVED):
            raise InvalidArgument(
                f"the name {name!r} is reserved", field="name", limit=f"no {RESERVED} at its beginning"
            )
        return f"{name}#{self.number(f'timer {name}')}"

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Code in here may issue nothing."""
        machine = self._machine
        before, machine.read_only = machine.read_only, what
        try:
            yield
        finally:
            machine.read_only = before


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """Silent while the code is replaying; says which run it is."""

    def __init__(self, state: RunState) -> None:
        super().__init__(logging.getLogger("perdure.workflow"), {})
        self._state = state

    def isEnabledFor(self, level: int) -> bool:
        return not self._state.is_replaying and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        info = self._state.info
        extra = {"workflow_id": info.workflow_id, "run_id": info.run_id, "workflow_type": info.type}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return msg, kwargs
