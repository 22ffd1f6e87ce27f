"""What can be done to a workflow run."""

from __future__ import annotations

from perdure.core import workflow_messages as w
from perdure.core.model import Failure, Payloads
from perdure.dashboard import values
from perdure.dashboard.request import link
from perdure.dashboard.visit import Page, Visit

UPDATE_SECONDS = 10.0
"""How long the answer to an update is awaited; it goes on after that."""


async def signal(visit: Visit) -> str:
    id, run = _run(visit)
    given = w.Signal(visit.field("name"), values.typed(visit.given("input")))
    await visit.service.signal_workflow(w.SignalWorkflow(id, given, run, visit.field("request_id")))
    return _back(id, run, "signal")


async def update(visit: Visit) -> Page:
    """Waits a while for the answer, and shows it. The update id is that of the form: sent twice it is one update."""
    id, run = _run(visit)
    body = w.UpdateWorkflow(
        id,
        visit.field("request_id"),
        visit.field("name"),
        values.typed(visit.given("input")),
        run,
        wait=UPDATE_SECONDS,
    )
    reply = await visit.service.update_workflow(body)
    return _reply(f"Update {body.name}", link("workflow", id=id, run=run), reply.stage, reply.result, reply.failure)


async def query(visit: Visit) -> Page:
    """Asks, and shows the answer."""
    id, run = _run(visit)
    body = w.QueryWorkflow(id, visit.field("name"), values.typed(visit.given("input")), run)
    reply = await visit.service.query_workflow(body)
    return _reply(f"Query {body.name}", link("workflow", id=id, run=run), "completed", reply.result, reply.failure)


async def cancel(visit: Visit) -> str:
    id, run = _run(visit)
    body = w.CancelWorkflow(id, run, visit.given("reason"), visit.field("request_id"))
    await visit.service.cancel_workflow(body)
    return _back(id, run, "cancel")


async def terminate(visit: Visit) -> str:
    id, run = _run(visit)
    await visit.service.terminate_workflow(w.TerminateWorkflow(id, run, visit.given("reason")))
    return _back(id, run, "terminate")


async def pause(visit: Visit) -> str:
    """Or resume."""
    id, run = _run(visit)
    paused = visit.field("paused") == "yes"
    await visit.service.pause_workflow(w.PauseWorkflow(id, run, paused))
    return _back(id, run, "pause" if paused else "resume")


async def reset(visit: Visit) -> str:
    """Begin again from an event or a step; the new run is shown then."""
    id, run = _run(visit)
    body = w.ResetWorkflow(
        id,
        run,
        visit.given_number("event"),
        visit.given("step") or None,
        visit.given("reason"),
        visit.field("request_id"),
    )
    reply = await visit.service.reset_workflow(body)
    return _back(id, reply.run_id, "reset")


async def resolve(visit: Visit) -> str:
    """Note what people have done about a closed run."""
    id, run = _run(visit)
    await visit.service.resolve_workflow(w.ResolveWorkflow(id, visit.given("note"), run))
    return _back(id, run, "resolve")


def _run(visit: Visit) -> tuple[str, str]:
    """The run that the form is about: always a certain one, so that nothing happens to a later one by mistake."""
    return visit.field("id"), visit.field("run")


def _back(id: str, run: str, done: str) -> str:
    return link("workflow", id=id, run=run, done=done)


def _reply(title: str, back: str, stage: str, result: Payloads, failure: Failure | None) -> Page:
    data = {"stage": stage, "answer": values.whole(result), "failure": failure, "back": back}
    return Page("reply.html", title, data)
