"""Which address is which page, and which is what a form does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from perdure.dashboard import (
    bulk,
    failures,
    history,
    overview,
    queues,
    schedule_actions,
    schedules,
    task_actions,
    tasks,
    workers,
    workflow_actions,
    workflows,
)
from perdure.dashboard.visit import Download, Page, Visit

PAGES: dict[str, Callable[[Visit], Awaitable[Page | Download]]] = {
    "": overview.overview,
    "tasks": tasks.listing,
    "task": tasks.task,
    "task-value": tasks.value,
    "bulk": bulk.count,
    "action": bulk.action,
    "workflows": workflows.listing,
    "workflow": workflows.workflow,
    "workflow-value": workflows.value,
    "event": history.event,
    "failures": failures.listing,
    "schedules": schedules.listing,
    "schedule": schedules.schedule,
    "queues": queues.listing,
    "workers": workers.listing,
}
"""Each gives its page, or raises a PerdureError."""

ACTIONS: dict[str, Callable[[Visit], Awaitable[str | Page]]] = {
    "task-cancel": task_actions.cancel,
    "task-retry": task_actions.retry,
    "bulk-start": bulk.start,
    "bulk-cancel": bulk.cancel,
    "limit-pause": queues.pause,
    "limit-set": queues.set_cap,
    "workflow-signal": workflow_actions.signal,
    "workflow-update": workflow_actions.update,
    "workflow-query": workflow_actions.query,
    "workflow-cancel": workflow_actions.cancel,
    "workflow-terminate": workflow_actions.terminate,
    "workflow-pause": workflow_actions.pause,
    "workflow-reset": workflow_actions.reset,
    "workflow-resolve": workflow_actions.resolve,
    "schedule-pause": schedule_actions.pause,
    "schedule-trigger": schedule_actions.trigger,
}
"""Each does what its form says and gives the address of the page that shows it, or a page that is the answer."""
