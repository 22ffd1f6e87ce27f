"""Worker processes, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.api.queues import SEPARATOR
from perdure.api.views import moment, moment_or_none
from perdure.core import ids
from perdure.core import messages as m
from perdure.core.describe import attempts_begun
from perdure.core.model import Task, WorkerSession
from perdure.core.run import Run
from perdure.core.states import Kind
from perdure.store.base import Store

MOST_RUNNING = 100
"""Tasks of one worker that an answer has."""


async def overview(store: Store, namespace: str, running: int) -> m.WorkersReply:
    """The worker processes of a namespace, each with so many of the tasks that it holds."""
    sessions = await store.sessions(namespace)
    if not running:
        return m.WorkersReply([_view(session) for session in sessions])
    held = {session.incarnation: await store.held(session.incarnation, running + 1) for session in sessions}
    runs = await store.run_rows(list({_run_id(task) for tasks in held.values() for task in tasks} - {b""}))
    views = []
    for session in sessions:
        tasks = [task for task in held[session.incarnation] if task.namespace == namespace]
        view = _view(session)
        view.running, view.more_running = _running(tasks[:running], runs), len(tasks) > running
        views.append(view)
    return m.WorkersReply(views)


def _view(session: WorkerSession) -> m.WorkerView:
    return m.WorkerView(
        identity=session.identity,
        queues=session.queues.split(SEPARATOR),
        slots=session.slots,
        build=session.build,
        started_at=moment(session.started_at),
        seen_at=moment(session.seen_at),
        ending=session.ends_at is not None,
    )


def _running(tasks: Sequence[Task], runs: Mapping[bytes, Run]) -> list[m.RunningTask]:
    return [
        m.RunningTask(
            task_id=ids.text(task.id),
            kind=task.kind.name.lower(),
            type=task.type,
            queue=task.queue,
            attempt=attempts_begun(task),
            started_at=moment_or_none(task.attempt_started_at),
            heard_at=moment_or_none(task.heartbeat_at),
            workflow_id=runs[run_id].workflow_id if run_id in runs else "",
            run_id=ids.text(run_id) if run_id in runs else "",
        )
        for task, run_id in ((task, _run_id(task)) for task in tasks)
    ]


def _run_id(task: Task) -> bytes:
    """The run that a task is a turn of, or an activity of; empty for a job."""
    return task.id if task.kind == Kind.WORKFLOW else task.parent_run_id or b""
