"""The list of workflow runs, and the page of one."""

from __future__ import annotations

from perdure.core import workflow_messages as w
from perdure.core.errors import InvalidArgument
from perdure.dashboard import graph, history, replay, values
from perdure.dashboard.tasks import ROWS
from perdure.dashboard.visit import Download, Page, Visit

STATUSES = ("RUNNING", "COMPLETED", "FAILED", "CANCELED", "TERMINATED", "TIMED_OUT", "CONTINUED_AS_NEW")
TABS = {"history": "History", "timeline": "Time line", "graph": "Steps", "replay": "Replay"}
"""What is shown below the facts of a run."""
LONG = 2_000
"""Events from which on a drawing of a history, or a replay, does not follow a run that goes on: each look reads all."""
_OF_BULK = {"type", "queue", "query"}
"""Filters that an action on all runs of a list can have, too."""


async def listing(visit: Visit) -> Page:
    """Runs that pass the filters in the address, newest first."""
    found = await visit.service.find_workflows(
        w.FindWorkflows(
            status=visit.get("status"),
            type=visit.get("type"),
            workflow_id=visit.get("workflow_id"),
            queue=visit.get("queue"),
            limit=ROWS,
            cursor=visit.get("cursor"),
            query=visit.get("query") or "",
            requires_intervention=visit.get("requires_intervention") is not None,
        )
    )
    given = visit.request.query.keys() - {"cursor"}
    of_open = visit.get("status") in (None, "RUNNING") and bool(given & _OF_BULK) and given <= {*_OF_BULK, "status"}
    return Page("workflows.html", "Workflows", {"found": found, "statuses": STATUSES, "of_open": of_open})


async def workflow(visit: Visit) -> Page:
    """One run: where it stands and what it waits for; its history, as a list, as bars, as a graph or step by step."""
    body = w.DescribeWorkflow(visit.need("id"), visit.get("run"))
    view = await visit.service.describe_workflow(body)
    tab = visit.get("view") or "history"
    still = view.history_length > LONG and tab != "history"
    data = {"run": view, "tab": tab, "tabs": TABS, "still": still}
    match tab:
        case "timeline" | "graph" | "replay" if still and visit.request.wants_events:
            data["tab"] = ""
        case "history":
            data["history"] = await history.window(visit, view)
        case "timeline":
            data["timeline"] = await graph.timeline(visit, view)
        case "graph":
            data["graph"] = await graph.drawn(visit, view)
        case "replay":
            data["replay"] = await replay.at_event(visit, view)
        case _:
            raise InvalidArgument(f"view is {tab[:50]!r}", field="view", limit=", ".join(TABS), kind="str")
    return Page("workflow.html", f"{view.type} {view.workflow_id}", data)


async def value(visit: Visit) -> Download:
    """The result of a run, whole."""
    view = await visit.service.describe_workflow(w.DescribeWorkflow(visit.need("id"), visit.get("run")))
    return Download(f"{view.run_id}-result.json", values.whole(view.result))
