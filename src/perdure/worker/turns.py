"""All workflow runs of a worker: the turns in its hands, the runs that wait in its memory, the questions about them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from perdure.client.base import Service
from perdure.core.errors import PerdureError
from perdure.core.messages import Completion, Delivery
from perdure.core.model import Failure
from perdure.core.workflow_messages import QUERY, Turn
from perdure.sdk.definition import Workflow
from perdure.worker.activations import Activations
from perdure.worker.appends import Appender
from perdure.worker.async_code import AsyncCode
from perdure.worker.async_turn import AsyncTurn
from perdure.worker.execute import Environment, Run, released
from perdure.worker.history import fetch
from perdure.worker.instances import Cached, Instances
from perdure.worker.machine import Instance
from perdure.worker.plain_turn import PlainTurn
from perdure.worker.queries import Query
from perdure.worker.status import WorkerFigures
from perdure.worker.steps import StepEnd, Steps
from perdure.worker.threads import Threads
from perdure.worker.turn import TurnInHand
from perdure.worker.watchdog import LIMIT_SECONDS, Watchdog

log = logging.getLogger("perdure.worker")

MOST_SPARED = 1_000
"""Runs."""
_FIRST_TURN = 3
"""Id of the WorkflowTaskStarted of a run's first turn, if nothing was sent to it before."""
Ended = Callable[[Run, Completion | None], None]


def is_turn(item: Delivery) -> bool:
    """Whether a delivery is for the code of a workflow: a turn of it, or a question."""
    return item.turn is not None or item.type == QUERY


class Turns:
    """`ended` is called with a run that this worker is done with, and what is to be reported about it, if anything;
    `draining` says whether the worker leaves. To be used on its loop. TypeError for a workflow that is annotated with
    what cannot be read."""

    def __init__(
        self,
        service: Service,
        workflows: Mapping[str, Workflow],
        threads: Threads,
        environment: Environment,
        ended: Ended,
        draining: Callable[[], bool],
        limit: float = LIMIT_SECONDS,
    ) -> None:
        self.service = service
        self.workflows = workflows
        self.threads = threads
        self.environment = environment
        self.ended = ended
        self.draining = draining
        self.figures = WorkerFigures()
        self.appender = Appender(service)
        self.watchdog = Watchdog(limit)
        self.activations = Activations(self.watchdog)
        self.instances = Instances(self.drop)
        self.steps = Steps(threads)
        for workflow in workflows.values():  # an annotation that cannot be read must fail here, and not the runs
            environment.converter.prepare(workflow.payload)
            environment.converter.prepare(workflow.result)
        self._loop = asyncio.get_running_loop()
        self._in_hand: dict[str, TurnInHand] = {}  #: by run id
        self.spared: dict[str, list[StepEnd]] = {}  #: by run id, the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, run: Run) -> None:
        """A turn was delivered, or a question."""
        if run.delivery.turn is None:
            Query(self, run).begin()
            return
        workflow = self.workflows.get(run.delivery.type)
        if workflow is None:
            self.ended(run, _unknown(run, self.workflows))
            return
        turn, have = self._turn(run, run.delivery.turn, workflow)
        self._in_hand[turn.turn.run_id] = turn
        if have + 1 >= turn.turn.first and not turn.turn.more:
            turn.begin(turn.turn.pages)
        else:
            self.keep(self._loop.create_task(self._fetch(turn, have)))

    def _turn(self, run: Run, turn: Turn, workflow: Workflow) -> tuple[TurnInHand, int]:
        """With the id of the last event that is in memory."""
        if not workflow.is_async:
            return PlainTurn(self, run, workflow), 0
        cached = self.instances.take(turn.run_id)
        if cached is not None and cached.broken:
            cached = None
        self.figures.cache_hits += cached is not None
        self.figures.cache_misses += cached is None and turn.started_event_id > _FIRST_TURN
        return AsyncTurn(self, run, workflow, cached), 0 if cached is None else cached.last

    async def _fetch(self, turn: TurnInHand, have: int) -> None:
        """The part of the history that was left out of the delivery."""
        given = turn.turn
        try:
            pages = await fetch(self.service, given.workflow_id, given.run_id, have, lambda: not turn.over)
        except PerdureError as error:
            if not turn.over:
                turn.fail(Failure(message=error.detail, code="history_unreadable", type=type(error).__name__))
        else:
            if not turn.over:
                turn.begin([*pages, given.pages[-1]])

    def stop(self, run: Run) -> None:
        """Its lease was lost, or the worker leaves."""
        turn = self.held(run.delivery.task_id)
        if turn is not None and turn.run is run:
            turn.stop()
        elif run.delivery.turn is None:
            outcomes = {"lost": None, "cancel": Completion(run.delivery.lease, "canceled")}
            self.ended(run, outcomes.get(run.ctx.stop, released(run)))

    def cached(self, run_id: str) -> Cached | None:
        """The run in memory, if an async one is here and waits."""
        turn = self._in_hand.get(run_id)
        cached = turn.cached if isinstance(turn, AsyncTurn) else self.instances.look(run_id)
        return None if cached is None or cached.broken else cached

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a reference, which the event loop does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def held(self, run_id: str) -> TurnInHand | None:
        return self._in_hand.get(run_id)

    def spare(self, run_id: str, ends: list[StepEnd]) -> None:
        """Keep for the next turn how steps have ended, when all that was wrong with this one is that messages came:
        they need not run again if that turn comes here."""
        if ends:
            self.spared[run_id] = ends
            if len(self.spared) > MOST_SPARED:
                del self.spared[next(iter(self.spared))]

    def replayed(self, turn: Turn, seconds: float) -> None:
        """A run that was not in memory has gone through its history; a first turn has none."""
        if turn.started_event_id > _FIRST_TURN:
            self.figures.replayed(seconds)

    def forget(self, turn: TurnInHand) -> None:
        """It is over."""
        if self._in_hand.get(turn.turn.run_id) is turn:
            del self._in_hand[turn.turn.run_id]

    def instance(self, workflow: Workflow, run_id: str) -> Instance:
        """Of an async workflow, before its first event."""
        return AsyncCode(workflow, self.environment, run_id)

    def drop(self, cached: Cached) -> None:
        """Forget a run; unwinding its code is work for the thread in which that runs."""
        cached.broken = True
        self.activations.add(_Drop(cached.instance))

    async def close(self) -> None:
        """Once no turn is in hand any more."""
        self.instances.clear()
        self.activations.close()
        self.watchdog.close()
        await self.appender.cancel()


class _Drop:
    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def work(self) -> None:
        try:
            self._instance.drop()
        except Exception:
            log.exception("workflow code raised an error while it was dropped from memory, which changes nothing")

    def done(self, fault: Failure | None) -> None:
        if fault is not None:
            log.error("workflow code that was dropped from memory: %s", fault.message)

    def progress(self) -> int:
        return 0


def _unknown(run: Run, workflows: Mapping[str, Workflow]) -> Completion:
    """A turn that fails, and not a run: a worker that knows the workflow may come."""
    known = ", ".join(sorted(workflows)) or "none"
    text = f"the worker has no workflow named {run.delivery.type!r}; it knows {known}"
    log.error("run %s: %s", run.delivery.task_id, text)
    return Completion(run.delivery.lease, "failed", failure=Failure(message=text, code="unknown_workflow"))
