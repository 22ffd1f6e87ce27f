"""Short forms for workflow runs in tests of the engine: what a worker would send, without a worker."""

from __future__ import annotations

from typing import Any

from perdure.core import commands as c
from perdure.core import pages
from perdure.core import turn_commands as t
from perdure.core.events import Event, WorkflowExecutionSignaled, WorkflowExecutionStarted, event_name
from perdure.core.ids import Mint
from perdure.core.lanes import TURNS, lane
from perdure.core.model import Payload, Task
from perdure.core.run import Run
from perdure.core.states import Kind, State
from perdure.engine.dispatch import PollRequest, Prepared
from tests.engine.drive import Drive

MINT = Mint()


def payload(text: str) -> tuple[Payload, ...]:
    return (Payload({"encoding": "json/plain"}, text.encode()),)


def start(
    workflow_id: str = "wf", *, request: str = "", draft: dict[str, Any] | None = None, **options: Any
) -> c.Enqueue:
    fields = {name: options.pop(name) for name in list(options) if name in WorkflowExecutionStarted.__struct_fields__}
    delay = options.pop("delay", 0)
    task = Task(
        b"", "default", "flow", State.ENQUEUED, lane("default", "default", TURNS), 0, 0, app="", kind=Kind.WORKFLOW,
        **(draft or {}),
    )  # fmt: skip
    event = WorkflowExecutionStarted(
        workflow_type="flow", workflow_id=workflow_id, task_queue="default", input=payload("1"), **fields
    )
    return c.Enqueue(
        draft=task,
        delay=delay,
        key=workflow_id,
        key_kind="workflow",
        key_life=30 * 86_400_000_000,
        digest=request.encode(),
        start=c.Start(run=Run(b"", workflow_id, b"", b""), event=event, **options),
    )


class Turn:
    """A turn in hand."""

    def __init__(self, drive: Drive, task: Task, prepared: Prepared) -> None:
        self.drive = drive
        self.task = task
        self.run = prepared.run
        self.events = prepared.events
        self.updates = prepared.updates
        self.after = prepared.events[-1].id
        self._first = True

    @property
    def names(self) -> list[str]:
        return [event_name(event.type) for event in self.events]

    def command(self, *commands: Any, final: bool = True, after: int | None = None) -> c.Append:
        return c.Append(
            lease=self.task.lease, after=self.after if after is None else after, commands=list(commands), final=final
        )

    async def append(self, *commands: Any, final: bool = True) -> c.Appended:
        done: c.Appended = await self.drive.one(self.command(*commands, final=final))
        self.after = done.last
        return done


class Flows:
    """Workflow runs over a Drive."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive

    async def start(self, *args: Any, **kwargs: Any) -> bytes:
        started: c.Started = await self.drive.one(start(*args, **kwargs))
        return started.run_id

    async def turns(self, capacity: int = 10) -> list[Turn]:
        request: PollRequest = self.drive.request(capacity)
        request = PollRequest(
            (lane("default", "default", TURNS),), capacity, request.incarnation, request.worker, request.poll, 0.0,
            lambda: True,
        )  # fmt: skip
        tasks = await self.drive.engine.poll(request)
        return [Turn(self.drive, task, request.turns[task.id]) for task in tasks]

    async def turn(self) -> Turn:
        (turn,) = await self.turns(1)
        return turn

    async def signal(self, name: str, workflow_id: str = "wf", **fields: Any) -> c.Told:
        told: c.Told = await self.drive.one(
            c.Tell(
                namespace="default",
                workflow_id=workflow_id,
                message=WorkflowExecutionSignaled(signal_name=name, input=payload("2")),
                **fields,
            )
        )
        return told

    async def history(self, run_id: bytes) -> list[Event]:
        found = await self.drive.engine.store.histories({run_id: 0}, 10_000)
        events = [event for page in found.get(run_id, ()) for event in pages.unpack(page.data)]
        assert [event.id for event in events] == list(range(1, len(events) + 1))
        times = [event.time for event in events]
        assert times == sorted(times)
        return events

    async def names(self, run_id: bytes) -> list[str]:
        return [event_name(event.type) for event in await self.history(run_id)]

    async def run(self, run_id: bytes) -> Run:
        return (await self.drive.engine.store.run_rows([run_id]))[run_id]


def activity(activity_id: str = "1", **fields: Any) -> t.ScheduleActivity:
    return t.ScheduleActivity(
        task_id=MINT.task_id(1_700_000_000_000_000), activity_id=activity_id, activity_type="work",
        task_queue="default", input=payload("3"), **fields,
    )  # fmt: skip


def timer(timer_id: str = "t", seconds: float = 60.0) -> t.StartTimer:
    return t.StartTimer(task_id=MINT.task_id(1_700_000_000_000_000), timer_id=timer_id, start_to_fire=seconds)


def child(workflow_id: str = "child", **fields: Any) -> t.StartChildWorkflow:
    return t.StartChildWorkflow(
        task_id=MINT.task_id(1_700_000_000_000_000), workflow_type="flow", workflow_id=workflow_id,
        task_queue="default", input=payload("4"), **fields,
    )  # fmt: skip


DONE = t.CompleteWorkflow(result=payload("5"))
