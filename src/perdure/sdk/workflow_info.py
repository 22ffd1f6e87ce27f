"""Who a run is: what `ctx.info` answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from perdure.core.events import Event, WorkflowExecutionStarted
from perdure.core.model import Failure
from perdure.core.schedule_messages import SCHEDULED_AT

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Parent:
    """The run that started this one as its child."""

    workflow_id: str
    run_id: str
    namespace: str


@dataclass(frozen=True)
class Info:
    """A run, as it began."""

    workflow_id: str
    run_id: str
    first_run_id: str  #: of the chain: retries, cron and continue-as-new make new runs
    previous_run_id: str  #: empty for the first run of a chain
    type: str
    queue: str
    attempt: int  #: of the workflow's retry policy, from 1
    started_at: datetime
    cron: str = ""
    execution_timeout: float | None = None  #: seconds, over all runs of the chain
    run_timeout: float | None = None  #: seconds
    parent: Parent | None = None
    root_workflow_id: str = ""  #: of the outermost parent
    root_run_id: str = ""
    last_result: object = None  #: of the last run that completed, for cron and scheduled workflows
    last_failure: Failure | None = None  #: of the run before, where that failed
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def scheduled_at(self) -> datetime | None:
        """The nominal time of the firing that started it, in UTC; None if no schedule did."""
        given = self.headers.get(SCHEDULED_AT)
        return None if given is None else datetime.fromisoformat(given)

    @classmethod
    def of(cls, event: Event, run_id: str, last_result: object) -> Info:
        """From a run's first event. `run_id` may be empty; then it is the one that the event knows."""
        begun = event.attributes
        assert isinstance(begun, WorkflowExecutionStarted)
        parent = None
        if begun.parent_workflow_id:
            parent = Parent(begun.parent_workflow_id, text(begun.parent_run_id), begun.parent_namespace)
        return cls(
            workflow_id=begun.workflow_id,
            run_id=run_id or text(begun.original_run_id),
            first_run_id=text(begun.first_run_id),
            previous_run_id=text(begun.continued_run_id),
            type=begun.workflow_type,
            queue=begun.task_queue,
            attempt=begun.attempt,
            started_at=moment(event.time),
            cron=begun.cron,
            execution_timeout=begun.execution_timeout,
            run_timeout=begun.run_timeout,
            parent=parent,
            root_workflow_id=begun.root_workflow_id,
            root_run_id=text(begun.root_run_id),
            last_result=last_result,
            last_failure=begun.last_failure,
            headers=begun.header,
        )


def text(run_id: bytes) -> str:
    return str(UUID(bytes=run_id)) if len(run_id) == 16 else ""


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)
