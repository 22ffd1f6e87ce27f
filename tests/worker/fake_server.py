"""A server of workflow runs for one worker, in memory: turns, appends, inboxes and histories as the contract says."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from perdure.core import events as e
from perdure.core import messages as m
from perdure.core import pages
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.errors import LeaseLost, Unavailable, UnhandledMessages
from perdure.core.model import Payload, Payloads
from perdure.core.run import UpdateRequest
from perdure.sdk.converter import from_payloads, to_payloads
from tests.worker.fake import FakeService

CLOSED = {
    t.CompleteWorkflow: "SUCCEEDED",
    t.FailWorkflow: "FAILED",
    t.CancelWorkflow: "CANCELED",
    t.ContinueAsNew: "CONTINUED_AS_NEW",
}
_SAME = {  # commands whose event has fields of the same names
    t.ScheduleActivity: e.ActivityTaskScheduled,
    t.CancelActivity: e.ActivityTaskCancelRequested,
    t.StartTimer: e.TimerStarted,
    t.CancelTimer: e.TimerCanceled,
    t.StartStep: e.StepStarted,
    t.CompleteStep: e.StepCompleted,
    t.FailStep: e.StepFailed,
    t.RecordMarker: e.MarkerRecorded,
    t.StartChildWorkflow: e.StartChildWorkflowExecutionInitiated,
    t.SignalExternalWorkflow: e.SignalExternalWorkflowExecutionInitiated,
    t.CancelExternalWorkflow: e.RequestCancelExternalWorkflowExecutionInitiated,
    t.UpsertSearchAttributes: e.UpsertWorkflowSearchAttributes,
    t.ModifyProperties: e.WorkflowPropertiesModified,
    t.AcceptUpdate: e.WorkflowExecutionUpdateAccepted,
    t.CompleteUpdate: e.WorkflowExecutionUpdateCompleted,
    t.CompleteWorkflow: e.WorkflowExecutionCompleted,
    t.FailWorkflow: e.WorkflowExecutionFailed,
    t.CancelWorkflow: e.WorkflowExecutionCanceled,
}


class FakeRun:
    """`state` is ENQUEUED, LEASED, WAITING, STUCK (its turn failed), or how it closed."""

    def __init__(self, type: str, workflow_id: str) -> None:
        self.id = str(uuid.uuid4())
        self.type = type
        self.workflow_id = workflow_id
        self.events: list[e.Event] = []
        self.inbox: list[e.AnyAttributes | UpdateRequest] = []
        self.state = "ENQUEUED"
        self.known = False  #: the worker is believed to have it in memory
        self.lease = b""
        self.prepared: list[e.Event] = []  #: of the turn in hand, while not written
        self.taken = 0  #: of the inbox, by the turn in hand
        self.answers: dict[tuple[bytes, int], w.Appended] = {}
        self.turns = 0
        self.appends: list[w.Append] = []
        self.failures: list[m.Completion] = []
        self.outcome: Any = None  #: the attributes of the event that closed it

    def names(self) -> list[str]:
        """The types of its events, without those that frame turns."""
        return [type(event.attributes).__name__ for event in self.events if not isinstance(event.attributes, _FRAME)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event.attributes for event in self.events if isinstance(event.attributes, kind)]

    def claimed(self) -> set[int]:
        """Steps that somebody runs."""
        running: set[int] = set()
        for event in self.events:
            if isinstance(event.attributes, e.StepStarted):
                running.add(event.attributes.step_id)
            elif isinstance(event.attributes, e.StepCompleted | e.StepFailed):
                running.discard(event.attributes.step_id)
        return running

    @property
    def closed(self) -> bool:
        return self.state in CLOSED.values()

    @property
    def result(self) -> Any:
        assert self.state == "SUCCEEDED", (self.state, self.outcome, self.failures)
        return from_payloads(self.outcome.result, "result")


_FRAME = (e.WorkflowTaskScheduled, e.WorkflowTaskStarted, e.WorkflowTaskCompleted)


class FakeServer(FakeService):
    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, FakeRun] = {}
        self.leased: dict[bytes, FakeRun] = {}
        self.now = 1_700_000_000_000_000
        self.append_requests: list[w.Appends] = []
        self.append_faults: list[Exception] = []
        self.lost_answers = 0  #: appends that are committed, and not answered
        self.history_requests: list[w.History] = []
        self.lazy = False  #: leaves all but the last page out of deliveries
        self.page = 100  #: events of a page

    # ------------------------------------------------------------------------------------------------- for the test
    async def start(self, type: str, input: Any = None, workflow_id: str = "") -> FakeRun:
        run = FakeRun(type, workflow_id or f"w-{len(self.runs)}")
        self.runs[run.id] = run
        started = e.WorkflowExecutionStarted(
            workflow_type=type,
            workflow_id=run.workflow_id,
            task_queue="default",
            input=to_payloads(input, "input"),
        )
        self._write(run, [started])
        await self._enqueue(run)
        return run

    async def post(self, run: FakeRun, *messages: e.AnyAttributes | UpdateRequest) -> None:
        run.inbox += messages
        if run.state == "WAITING":
            await self._enqueue(run)

    async def signal(self, run: FakeRun, name: str, value: Any = None) -> None:
        await self.post(run, e.WorkflowExecutionSignaled(signal_name=name, input=to_payloads(value, "input")))

    async def complete_activity(self, run: FakeRun, activity_id: str, value: Any) -> None:
        (scheduled,) = [
            event.id
            for event in run.events
            if isinstance(event.attributes, e.ActivityTaskScheduled) and event.attributes.activity_id == activity_id
        ]
        await self.post(
            run,
            e.ActivityTaskStarted(scheduled_event_id=scheduled),
            e.ActivityTaskCompleted(scheduled_event_id=scheduled, result=to_payloads(value, "result")),
        )

    async def fire(self, run: FakeRun) -> None:
        """All its timers."""
        over = {fired.started_event_id for fired in run.of(e.TimerFired) + run.of(e.TimerCanceled)}
        await self.post(
            run,
            *[
                e.TimerFired(timer_id=event.attributes.timer_id, started_event_id=event.id)
                for event in run.events
                if isinstance(event.attributes, e.TimerStarted) and event.id not in over
            ],
        )

    async def query(self, run: FakeRun, name: str, input: Any = None) -> bytes:
        """Its lease: `result` and `reported` tell the answer."""
        body = w.QueryWorkflow(run.workflow_id, name, to_payloads(input, "input"), run.id)
        return await self.give("perdure:query", raw=_packed(body))

    async def retry_turn(self, run: FakeRun) -> None:
        """The back-off of a failed turn is over."""
        assert run.state == "STUCK"
        await self._enqueue(run)

    async def take_away(self, run: FakeRun) -> None:
        """The lease ends, and the next one begins."""
        self.actions[run.lease] = "lost"
        self.leased.pop(run.lease)
        run.known = False
        await self._enqueue(run)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Also of things that the server does not see."""
        while not condition():
            await asyncio.sleep(0.001)

    async def in_state(self, run: FakeRun, state: str) -> None:
        await self.until(lambda: run.state == state)

    async def done(self, run: FakeRun) -> FakeRun:
        await self.until(lambda: run.closed)
        return run

    # ------------------------------------------------------------------------------------------------------- turns
    async def _enqueue(self, run: FakeRun) -> None:
        run.state = "LEASED"  # it is delivered by the next poll
        run.turns += 1
        self._leases += 1
        run.lease = b"turn-%d" % self._leases
        self.leased[run.lease] = run
        events: list[e.AnyAttributes] = [item for item in run.inbox if not isinstance(item, UpdateRequest)]
        updates = [item for item in run.inbox if isinstance(item, UpdateRequest)]
        last = len(run.events) + len(events)
        frame = [e.WorkflowTaskScheduled(task_queue="default"), e.WorkflowTaskStarted(scheduled_event_id=last + 1)]
        run.prepared = self._stamp(run, [*events, *frame])
        run.taken = len(run.inbox)
        first = len(run.events) + 1 if run.known else 1
        old = [] if run.known or self.lazy else self._pages(run, 0)
        turn = w.Turn(
            workflow_id=run.workflow_id,
            run_id=run.id,
            first=first,
            pages=[*old, pages.pack(b"", run.prepared).data],
            started_event_id=run.prepared[-1].id,
            updates=updates,
            more=self.lazy and not run.known,
        )
        delivery = m.Delivery(run.id, run.lease, run.type, "default", 1, 1, turn=turn)
        await self._give([delivery])

    def _stamp(self, run: FakeRun, attributes: list[e.AnyAttributes]) -> list[e.Event]:
        stamped = []
        for offset, item in enumerate(attributes):
            self.now += 1000
            stamped.append(e.Event(len(run.events) + 1 + offset, self.now, item))
        return stamped

    def _write(self, run: FakeRun, attributes: list[e.AnyAttributes]) -> None:
        run.events += self._stamp(run, attributes)

    def _pages(self, run: FakeRun, after: int) -> list[bytes]:
        events = run.events[after:]
        chunks = [events[at : at + self.page] for at in range(0, len(events), self.page)]
        return [pages.pack(b"", chunk).data for chunk in chunks]

    # ---------------------------------------------------------------------------------------------------- a Service
    async def append(self, body: w.Appends) -> w.AppendReply:
        self.append_requests.append(body)
        await self.gate.wait()
        if self.append_faults:
            raise self.append_faults.pop(0)
        outcomes = [await self._append(append) for append in body.appends]
        async with self._changed:
            self._changed.notify_all()
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unavailable("the answer was lost")
        return w.AppendReply(outcomes)

    async def _append(self, append: w.Append) -> w.Appended:
        for run in self.runs.values():
            if (append.lease, append.after) in run.answers:
                return run.answers[append.lease, append.after]
        run_or_none = self.leased.get(append.lease)
        if run_or_none is None:
            return w.Appended(error=LeaseLost().problem())
        run = run_or_none
        run.appends.append(append)
        closing = type(append.commands[-1]) if append.commands and type(append.commands[-1]) in CLOSED else None
        assert append.after == len(run.events) + len(run.prepared)
        assert closing is None or append.final
        if closing not in (None, t.ContinueAsNew) and len(run.inbox) > run.taken:
            self.leased.pop(run.lease)
            run.known = False
            await self._enqueue(run)
            return w.Appended(error=UnhandledMessages().problem())
        if run.prepared:
            run.events += run.prepared
            started = run.events[-1].id
            self._write(run, [e.WorkflowTaskCompleted(scheduled_event_id=started - 1, started_event_id=started)])
            del run.inbox[: run.taken]
            run.taken, run.prepared = 0, []
        self._write(run, [_event(command) for command in append.commands if not isinstance(command, t.RejectUpdate)])
        if append.final:
            assert closing is not None or not run.claimed(), "the turn ends while steps run"
            self.leased.pop(run.lease)
            run.known = True
            run.state = "WAITING"
            if closing is not None:
                run.state = CLOSED[closing]
                run.outcome = run.events[-1].attributes
            elif run.inbox:
                await self._enqueue(run)
        answer = w.Appended(state=run.state, last=len(run.events))
        run.answers[append.lease, append.after] = answer
        return answer

    async def history(self, body: w.History) -> w.HistoryReply:
        self.history_requests.append(body)
        run = self.runs[body.run_id or ""]
        found = self._pages(run, body.after)
        return w.HistoryReply(run.id, found[:2], more=len(found) > 2, closed=run.closed)

    async def complete(self, body: m.Complete) -> m.CompleteReply:
        reply = await super().complete(body)
        for completion, outcome in zip(body.completions, reply.outcomes, strict=True):
            run = self.leased.pop(completion.lease, None)
            if run is None or outcome.error is not None:
                continue
            run.known = False
            run.state = "STUCK" if completion.outcome == "failed" else "RELEASED"
            run.failures.append(completion)
        async with self._changed:
            self._changed.notify_all()
        return reply


def _packed(body: w.QueryWorkflow) -> Payloads:
    """The payload of a query job."""
    return (Payload({"encoding": "binary/plain"}, msgspec.msgpack.encode(body)),)


def _event(command: t.TurnCommand) -> e.AnyAttributes:
    if isinstance(command, t.ContinueAsNew):
        return e.WorkflowExecutionContinuedAsNew(
            new_run_id=command.task_id,
            workflow_type=command.workflow_type,
            task_queue=command.task_queue,
            input=command.input,
        )
    kind: Any = _SAME[type(command)]
    shared = set(kind.__struct_fields__) & set(command.__struct_fields__)
    return kind(**{name: getattr(command, name) for name in shared})  # type: ignore[no-any-return]
