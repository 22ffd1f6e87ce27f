"""Messages of a run and the handlers of its code: signals, queries, updates.

A signal goes to its handler, else to the code that waits for it (`wait_for_signal`), else it is kept, in order, until
one of the two comes (SIG-04). An update whose handler is not there when it arrives is looked at again once the code
waits, because a function registers its handlers as it runs (field case B092); then it is rejected.

Handlers start in the order of arrival and before the code goes on. What a driver does is `spawn`: call a handler, and
say how it ended.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.events import Event, WorkflowExecutionSignaled
from perdure.core.model import Failure, Payloads
from perdure.core.run import UpdateRequest
from perdure.core.turn_commands import AcceptUpdate, CompleteUpdate, RejectUpdate
from perdure.sdk.failure import to_failure
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.task import place
from perdure.sdk.waiting import Wait
from perdure.sdk.workflow_errors import STOPPED, failure_of

if TYPE_CHECKING:
    from perdure.sdk.run_state import RunState

log = logging.getLogger("perdure.workflow")

Ended = Callable[[Any, BaseException | None], None]
"""What a handler returned, or what it raised."""


class Handler(NamedTuple):
    """A function that handles messages of one name."""

    name: str
    function: Callable[..., Any]
    takes: bool  #: a value; False: it is called without
    payload: Hint
    result: Hint
    validator: Callable[..., Any] | None = None

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], validator: Callable[..., Any] | None = None) -> Handler:
        """TypeError for a function that takes more than one value."""
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if len(needed) > 1:
            raise TypeError(f"the handler of {name!r} at {place(function)} must take one value or none")
        inner = getattr(inspect.unwrap(function), "__globals__", None)
        where = f"the annotation of the handler of {name!r}"
        payload = Hint(parameters[0].annotation, inner, where) if _annotated(parameters) else ANY
        result = ANY
        if signature.return_annotation is not signature.empty:
            result = Hint(signature.return_annotation, inner, where)
        return cls(name, function, bool(parameters), payload, result, validator)


def _annotated(parameters: list[inspect.Parameter]) -> bool:
    return bool(parameters) and parameters[0].annotation is not inspect.Parameter.empty


class Handlers:
    """Those of one run, and the messages that wait for one. `spawn` calls a handler with its arguments; `failed` is
    told of an error that a signal handler raised: it ends the run."""

    def __init__(
        self,
        ctx: RunState,
        spawn: Callable[[Callable[..., Any], tuple[Any, ...], Ended], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._ctx = ctx
        self._spawn = spawn
        self._failed = failed
        self.signals: dict[str, Handler] = {}
        self.queries: dict[str, Handler] = {}
        self.updates: dict[str, Handler] = {}
        self.unfinished: Counter[str] = Counter()  #: handlers that run, by name
        self._kept: dict[str, deque[Any]] = {}  #: signals that nobody has asked for yet
        self._waiting: dict[str, deque[Wait]] = {}
        self._later: list[tuple[UpdateRequest, Event | None]] = []

    # --------------------------------------------------------------------------------------------------- signals
    def signal(self, event: Event) -> None:
        signal = event.attributes
        assert isinstance(signal, WorkflowExecutionSignaled)
        name = signal.signal_name
        handler = self.signals.get(name)
        try:
            value = self._ctx.converter.from_payloads(signal.input, "signal", handler.payload if handler else ANY)
        except InvalidArgument as error:
            self._ctx.logger.error("signal %r is dropped, because it cannot be read: %s", name, error)
            return
        if handler is not None:
            self._call(handler, value)
        elif (wait := self._next_waiting(name)) is not None:
            wait.finish((_heard(value),))
        else:
            self._kept.setdefault(name, deque()).append(value)

    def _next_waiting(self, name: str) -> Wait | None:
        """The one that has waited longest, and whose time is not over."""
        waiting = self._waiting.get(name)
        while waiting:
            wait = waiting.popleft()
            if not wait.done:
                return wait
        return None

    def on_signal(self, handler: Handler) -> None:
        """From now on; those that were kept come first."""
        self.signals[handler.name] = handler
        for value in self._kept.pop(handler.name, ()):
            self._call(handler, value)

    def next_signal(self, name: str) -> Wait:
        """Done with a tuple of the signal's value as soon as there is one."""
        wait = Wait()
        if kept := self._kept.get(name):
            wait.finish((_heard(kept.popleft()),))
        else:
            self._waiting.setdefault(name, deque()).append(wait)
        return wait

    def kept(self) -> list[tuple[str, Any]]:
        """Signals that nobody has asked for yet: name and value."""
        return [(name, value) for name, values in self._kept.items() for value in values]

    def give_up(self, name: str, wait: Wait) -> None:
        """It is not waited for any more; a signal that had come at the last moment is kept."""
        if isinstance(wait.value, tuple):
            self._kept.setdefault(name, deque()).appendleft(wait.value[0])
        elif wait in (waiting := self._waiting.get(name, deque())):
            waiting.remove(wait)

    def _call(self, handler: Handler, value: object) -> None:
        self.unfinished[handler.name] += 1

        def ended(_: object, error: BaseException | None) -> None:
            self._finished(handler.name)
            if error is not None and not isinstance(error, STOPPED):
                self._failed(error)

        self._spawn(handler.function, (value,) if handler.takes else (), ended)

    def _finished(self, name: str) -> None:
        self.unfinished[name] -= 1
        if not self.unfinished[name]:
            del self.unfinished[name]

    # --------------------------------------------------------------------------------------------------- updates
    def update(self, request: UpdateRequest, accepted: Event | None) -> None:
        """A new update, or one that the history has accepted."""
        if request.name in self.updates:
            self._look_at(self.updates[request.name], request, accepted)
        else:
            self._later.append((request, accepted))

    def look_again(self) -> bool:
        """The code waits: those that found no handler when they came. False when there were none."""
        later, self._later = self._later, []
        for request, accepted in later:
            handler = self.updates.get(request.name)
            if handler is not None:
                self._look_at(handler, request, accepted)
            elif accepted is None:
                known = ", ".join(sorted(self.updates)) or "none"
                self._reject(request, _rejection(f"no update is named {request.name!r}; there are: {known}"))
        return bool(later)

    def _look_at(self, handler: Handler, request: UpdateRequest, accepted: Event | None) -> None:
        try:
            value = self._ctx.converter.from_payloads(request.input, "update", handler.payload)
            arguments = (value,) if handler.takes else ()
            if accepted is None and handler.validator is not None:
                with self._ctx.reading("a validator"):
                    handler.validator(*arguments)
        except Exception as error:  # whatever a validator raises rejects the update (SIG-12)
            if accepted is not None:
                raise
            self._reject(request, _rejection(error))
            return
        command = AcceptUpdate(
            update_id=request.update_id,
            task_id=request.task_id,
            name=request.name,
            input=request.input,
            header=request.header,
            identity=request.identity,
            sequencing_event_id=self._ctx.activation,
        )
        event_id = self._ctx.issue(command).event_id
        self.unfinished[request.name] += 1

        def ended(result: object, error: BaseException | None) -> None:
            self._finished(request.name)
            self._answer(handler, request, event_id, result, error)

        self._spawn(handler.function, arguments, ended)

    def _reject(self, request: UpdateRequest, failure: Failure) -> None:
        self._ctx.issue(RejectUpdate(update_id=request.update_id, task_id=request.task_id, failure=failure))

    def _answer(
        self, handler: Handler, request: UpdateRequest, event_id: int, result: object, error: BaseException | None
    ) -> None:
        payloads: Payloads = ()
        failure = None
        if error is None:
            try:
                payloads = self._ctx.converter.to_payloads(result, "result", handler.result)
            except InvalidArgument as fault:
                error = fault
        if error is not None:
            if not isinstance(error, (Exception, *STOPPED)):
                self._failed(error)  # the run ends with it, and the server answers
                return
            failure = failure_of(error)
        self._ctx.issue(
            CompleteUpdate(
                update_id=request.update_id,
                task_id=request.task_id,
                accepted_event_id=event_id,
                result=payloads,
                failure=failure,
            )
        )

    # --------------------------------------------------------------------------------------------------- queries
    def query(self, name: str, input: Payloads) -> Payloads:
        """Changes nothing. NotFound for an unknown name; else what the handler raises."""
        handler = self.queries.get(name)
        if handler is None:
            known = ", ".join(sorted(self.queries)) or "none"
            raise NotFound(f"workflow {self._ctx.info.type} has no query named {name!r}; there are: {known}")
        converter = self._ctx.converter
        value = converter.from_payloads(input, "query", handler.payload)
        with self._ctx.reading("a query"):
            answer = handler.function(*((value,) if handler.takes else ()))
        return converter.to_payloads(answer, "answer", handler.result)


def _heard(value: object) -> object:
    """None says that the time was over (SIG-07), so a signal without a value is True."""
    return True if value is None else value


def _rejection(reason: str | Exception) -> Failure:
    if isinstance(reason, str):
        return Failure(message=reason, code="update_rejected", type="UpdateRejected", retryable=False)
    return to_failure(reason, code="update_rejected")
