"""Durable background jobs for Python, on a SQLite file or on PostgreSQL.

@task(retries=RetryPolicy(max_attempts=5), timeout="10m")
def resize_image(ctx, payload): ...

app = Perdure("sqlite:///jobs.db")
job = app.enqueue(resize_image, {"path": "a.png"})
with app.worker():
    print(job.result(timeout=60))
"""

from perdure.app import AsyncPerdure, Perdure
from perdure.core.errors import (
    Cancelled,
    Conflict,
    FatalError,
    IdempotencyConflict,
    IllegalMove,
    InvalidArgument,
    LeaseLost,
    NotFound,
    NoWorker,
    OutcomeUnknown,
    PayloadTooLarge,
    PerdureError,
    PermissionDenied,
    QueryFailed,
    ResourceExhausted,
    RetryableError,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    TaskTerminated,
    Unauthenticated,
    Unavailable,
    UpdateFailed,
    WaitTimeout,
    WorkflowAlreadyStarted,
    WorkflowClosed,
)
from perdure.core.limit_messages import Breaker
from perdure.core.model import Failure, RetryPolicy
from perdure.sdk.context import Context
from perdure.sdk.handle import AsyncJob, Job
from perdure.sdk.logs import TaskLogFilter
from perdure.sdk.middleware import Middleware
from perdure.sdk.plugin import DataConverter
from perdure.sdk.run_handle import AsyncWorkflowHandle, WorkflowHandle
from perdure.sdk.saga import PivotPassedError, Saga, SagaOutcome
from perdure.sdk.schedules import AsyncScheduleHandle, ScheduleHandle
from perdure.sdk.task import Task, task
from perdure.sdk.workflow import workflow
from perdure.sdk.workflow_context import WorkflowContext
from perdure.sdk.workflow_errors import (
    ActivityError,
    ChildWorkflowError,
    ExternalWorkflowError,
    ForbiddenError,
    NonDeterminismError,
    StepError,
)

__all__ = [
    "AsyncPerdure",
    "Perdure",
    "task",
    "RetryPolicy",
    "Breaker",
    "Context",
    "AsyncJob",
    "Job",
    "AsyncWorkflowHandle",
    "WorkflowHandle",
    "AsyncScheduleHandle",
    "ScheduleHandle",
    "Task",
    "workflow",
    "WorkflowContext",
    "Saga",
    "SagaOutcome",
    "Failure",
    "DataConverter",
    "Middleware",
    "TaskLogFilter",
    # raised by handlers
    "RetryableError",
    "FatalError",
    "Cancelled",
    "LeaseLost",  # by ctx.complete_in
    # raised in the code of workflows
    "ActivityError",
    "StepError",
    "ChildWorkflowError",
    "ExternalWorkflowError",
    "ForbiddenError",
    "NonDeterminismError",
    "PivotPassedError",
    # raised by result()
    "TaskFailed",
    "TaskCanceled",
    "TaskExpired",
    "TaskTerminated",
    "WaitTimeout",
    # raised by update() and query()
    "UpdateFailed",
    "QueryFailed",
    # raised by calls
    "PerdureError",
    "InvalidArgument",
    "PayloadTooLarge",
    "Unauthenticated",
    "PermissionDenied",
    "NotFound",
    "Conflict",
    "IdempotencyConflict",
    "IllegalMove",
    "WorkflowAlreadyStarted",
    "WorkflowClosed",
    "ResourceExhausted",
    "Unavailable",
    "NoWorker",
    "OutcomeUnknown",
]
