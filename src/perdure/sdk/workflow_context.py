"""`ctx` of a workflow: everything that its code may ask for.

The same methods serve both styles. In `async def` those that say "awaited" give something to await; in `def` they
return when it is there. The others answer at once and are not awaited. Code may only ask for the time, for randomness
and for the world through here, so that it does the same again on replay (RPLY-01).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from perdure.core.durations import Duration
from perdure.core.durations import seconds as in_seconds
from perdure.core.errors import InvalidArgument
from perdure.core.model import DEFAULT_RETRY, Payloads, RetryPolicy
from perdure.core.turn_commands import (
    CancelExternalWorkflow,
    ContinueAsNew,
    ModifyProperties,
    RecordMarker,
    ScheduleActivity,
    SignalExternalWorkflow,
    StartChildWorkflow,
    TurnCommand,
    UpsertSearchAttributes,
)
from perdure.sdk import hints, operations
from perdure.sdk.converter import PLAIN, Converter
from perdure.sdk.handlers import Handler, Handlers
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.mint import mint_id
from perdure.sdk.operations import Handle, Operation
from perdure.sdk.retry import AfterError, retry_policy
from perdure.sdk.saga import Saga
from perdure.sdk.steps import StepCall
from perdure.sdk.task import Task
from perdure.sdk.waiting import Commands, Pending, Wait
from perdure.sdk.workflow_errors import ContinuedAsNew, NonDeterminismError
from perdure.sdk.workflow_info import Info, moment

if TYPE_CHECKING:
    from perdure.sdk.definition import Workflow

CURRENT: ContextVar[WorkflowContext | None] = ContextVar("perdure_workflow", default=None)
"""The ctx of the workflow whose code is running here."""

