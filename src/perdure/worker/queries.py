"""A question to the code of a workflow run, which changes nothing: answered by the run in memory, or by a replay of its
history."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import msgspec

from perdure.core.errors import Conflict, NotFound, PerdureError
from perdure.core.events import Event
from perdure.core.messages import Completion
from perdure.core.model import Failure, Payloads
from perdure.core.workflow_messages import QueryWorkflow
from perdure.sdk.failure import to_failure
from perdure.sdk.history import completed
from perdure.worker.execute import Run
from perdure.worker.groups import fetch_results
from perdure.worker.history import events_after, fetch
from perdure.worker.instances import Cached
from perdure.worker.machine import Instance
from perdure.worker.plain import PlainCode
from perdure.worker.watchdog import Hanging, interrupt

if TYPE_CHECKING:
    from perdure.worker.turns import Turns

Answer = Payloads | BaseException


class Query:
    """To be used on the worker's loop."""

    def __init__(self, turns: Turns, run: Run) -> None:
        self._turns = turns
        self._run = run
        self.asked = msgspec.msgpack.decode(run.delivery.payload[0].data, type=QueryWorkflow)

    def begin(self) -> None:
        run_id = self.asked.run_id or ""
        held = self._turns.held(run_id)
        if held is not None and held.sending:  # what the code would show may come to nothing
            held.when_quiet(self.begin)
        elif (cached := self._turns.cached(run_id)) is not None:
            self._turns.activations.add(_Asking(self, cached, []))
        else:
            self._turns.keep(asyncio.get_running_loop().create_task(self._replay()))

    async def _replay(self) -> None:
        turns, asked = self._turns, self.asked
        try:
            pages = await fetch(turns.service, asked.workflow_id, asked.run_id, 0, lambda: not self._run.ended)
            events = events_after(pages, 0)
            results = await fetch_results(turns.service, completed(events), lambda: not self._run.ended)
        except PerdureError as error:
            self.answer(error)
            return
        if self._run.ended:
            return
        name: str = events[0].attributes.workflow_type  # type: ignore[union-attr]
        workflow = turns.workflows.get(name)
        if workflow is None:
            self.answer(NotFound(f"the worker has no workflow named {name!r}"))
        elif workflow.is_async:
            cached = Cached(turns.instance(workflow, asked.run_id or ""))
            cached.last, cached.read = events[-1].id, sum(map(len, pages))
            cached.instance.machine.results |= results
            turns.activations.add(_Asking(self, cached, events))
        else:
            code = PlainCode(workflow, turns.environment, asked.run_id or "")
            code.machine.results |= results
            _AskingPlain(self, turns, code, events).begin()

    def ask(self, instance: Instance, events: list[Event]) -> Answer:
        """In the activation thread."""
        try:
            if events:
                instance.machine.feed(events)
                instance.run()
            if not instance.machine.activation:
                raise Conflict("the run has not begun")
            return instance.query(self.asked.name, self.asked.input)
        except Hanging:
            raise
        except BaseException as error:  # noqa: BLE001 - the handler's own code, and it may raise anything
            return error

    def answer(self, answer: Answer) -> None:
        if self._run.ended:
            return
        lease = self._run.delivery.lease
        if isinstance(answer, BaseException):
            self.refuse(_failure(answer))
        else:
            self._turns.ended(self._run, Completion(lease, "succeeded", answer))

    def refuse(self, failure: Failure) -> None:
        if not self._run.ended:
            self._turns.ended(self._run, Completion(self._run.delivery.lease, "failed", failure=failure))

    def keep(self, cached: Cached, faulty: bool) -> None:
        """A run that was replayed: for the next question, or the next turn."""
        run_id = self.asked.run_id
        if faulty or run_id is None or self._turns.held(run_id) or self._turns.cached(run_id):
            self._turns.drop(cached)
        else:
            self._turns.instances.put(run_id, cached)


class _Asking:
    """An activation: a question, after a replay of `events` if there are any."""

    def __init__(self, query: Query, cached: Cached, events: list[Event]) -> None:
        self._query = query
        self._cached = cached
        self._events = events
        self._answer: Answer = ()

    def work(self) -> None:
        self._answer = self._query.ask(self._cached.instance, self._events)

    def done(self, fault: Failure | None) -> None:
        if fault is not None:
            self._cached.broken = True
            self._query.refuse(fault)
            return
        self._query.answer(self._answer)
        if self._events:
            self._query.keep(self._cached, isinstance(self._answer, BaseException))

    def progress(self) -> int:
        return self._cached.instance.machine.activation


class _AskingPlain:
    """A question to plain code, which runs from the top in a thread."""

    def __init__(self, query: Query, turns: Turns, code: PlainCode, events: list[Event]) -> None:
        self._query = query
        self._turns = turns
        self._code = code
        self._events = events
        self._thread: int | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        self._turns.watchdog.watch(self)
        self._turns.threads.call(self._work, self._done)

    def _work(self) -> Answer:
        asked = self._query.asked
        try:
            self._thread = threading.get_ident()
            self._code.machine.feed(self._events)
            answer = self._code.query(asked.name, asked.input)
            with self._lock:
                self._thread = None
            return answer
        except BaseException as error:  # noqa: BLE001 - the application's own code, and it may raise anything
            self._thread = None
            return error

    def _done(self, answer: Answer) -> None:
        self._turns.watchdog.leave(self)
        self._query.answer(answer)

    def thread(self) -> int | None:
        return self._thread

    def progress(self) -> object:
        return self._code.machine.activation

    def hangs(self, thread: int, fault: Failure) -> None:
        with self._lock:
            if self._thread == thread:
                interrupt(thread)
        self._turns.watchdog.leave(self)
        self._query.refuse(fault)


def _failure(error: BaseException) -> Failure:
    if isinstance(error, NotFound):
        return Failure(message=error.detail, code="unknown_query", type="NotFound", retryable=False)
    return msgspec.structs.replace(to_failure(error, code="query_failed"), retryable=False)
