"""The OpenAPI document: what the framework derives from the handlers, and what it cannot know: examples, the problem
documents that each operation may answer, and how callers say who they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perdure.api import (
    event_examples,
    examples,
    failure_examples,
    limit_examples,
    schedule_examples,
    search_examples,
    workflow_examples,
)
from perdure.api import event_schema as es
from perdure.api import failure_schema as fs
from perdure.api import limit_schema as ls
from perdure.api import schedule_schema as ss
from perdure.api import workflow_schema as ws
from perdure.api.bounds import bound
from perdure.api.examples import PROBLEMS
from perdure.api.rest_owners import OwnerRequest
from perdure.api.schema import BatchRequest, CancelRequest, TaskRequest
from perdure.api.search_schema import SearchAttributeRequest

_EXAMPLES = (
    examples, workflow_examples, failure_examples, schedule_examples, event_examples, limit_examples, search_examples,
)  # fmt: skip
ANSWERS = {name: answers for module in _EXAMPLES for name, answers in module.ANSWERS.items()}
REQUESTS = {name: requests for module in _EXAMPLES for name, requests in module.REQUESTS.items()}
_KEY = "apiKey"
_ALWAYS = ("400", "401", "403", "429", "503")
_REFUSALS: dict[str, tuple[str, ...]] = {
    "enqueueTask": ("409", "413"),
    "enqueueTasks": ("413",),
    "getTask": ("404", "410"),
    "cancelTask": ("404", "410"),
    "retryTask": ("404", "409", "410", "413"),
    "retryTasks": ("409",),
    "cancelTasks": ("409",),
    "cancelWorkflows": ("409",),
    "terminateWorkflows": ("409",),
    "deleteTasks": ("409",),
    "getBulkAction": ("404",),
    "cancelBulkAction": ("404", "410"),
    "getJob": ("404", "410"),
    "getJobResult": ("404", "409", "410"),
    "cancelJob": ("404", "410"),
    "startWorkflow": ("409", "413"),
    "getWorkflow": ("404",),
    "getWorkflowHistory": ("404",),
    "getWorkflowResult": ("404", "409"),
    "signalWorkflow": ("404", "409", "413"),
    "queryWorkflow": ("404", "409", "413"),
    "updateWorkflow": ("404", "409", "413"),
    "cancelWorkflow": ("404", "409"),
    "terminateWorkflow": ("404", "409"),
    "pauseWorkflow": ("404", "409"),
    "resumeWorkflow": ("404", "409"),
    "resetWorkflow": ("404", "409"),
    "resolveWorkflow": ("404", "409"),
    "completeActivity": ("404", "409", "413"),
    "listEvents": ("409", "410"),
    "recordEvents": ("409",),
    "getTaskStream": ("404",),
    "addWebhook": ("410",),
    "disableWebhook": ("404",),
    "replayWebhook": ("404", "410"),
    "pingWebhook": ("404",),
    "listWebhookDeadLetters": ("404",),
    "createSchedule": ("409", "413"),
    "putSchedule": ("413",),
    "getSchedule": ("404",),
    "updateSchedule": ("404", "409", "413"),
    "deleteSchedule": ("404",),
    "pauseSchedule": ("404",),
    "resumeSchedule": ("404",),
    "triggerSchedule": ("404",),
    "backfillSchedule": ("404", "409"),
    "deleteLimit": ("404",),
    "addSearchAttribute": ("409",),
    "removeSearchAttribute": ("404",),
    "deleteQueueOwner": ("404",),
    "switchBreaker": ("404",),
}
"""What an operation may be refused with besides _ALWAYS."""
_HEADERS: dict[str, dict[str, Any]] = {
    "Location": {"description": "Where to look.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds until the next look makes sense.", "schema": {"type": "integer"}},
}
_ABOUT = (
    "Durable background jobs and workflows. A server with API keys wants `Authorization: Bearer pdk_...`; one without "
    "takes the namespace from the header `Perdure-Namespace`. Every error is a problem document (RFC 9457) with a "
    "stable `code`; `retryable` says whether the same request may succeed later."
)
_SHORT = "Short"  #: ends the operation ids of the paths without a version, which are the same as those with one


def by_path(name: str) -> Callable[[Any, Any, list[Any]], str]:
    """The operation id of a handler that answers under /v1 and, for short, without it."""

    def operation_id(_handler: Any, _method: Any, path: list[Any]) -> str:
        return name if path[0] == "v1" else name + _SHORT

    return operation_id


def complete(document: dict[str, Any]) -> dict[str, Any]:
    """The document of the framework, made whole; it is changed in place."""
    document["info"]["description"] = _ABOUT
    components = document["components"]
    _, bodies = msgspec.json.schema_components(set(_BODIES.values()), ref_template="#/components/schemas/{name}")
    components["schemas"] |= bodies
    components["securitySchemes"] = {
        _KEY: {"type": "http", "scheme": "bearer", "description": "An API key, made by `perdure keys create`."}
    }
    document["security"] = [{_KEY: []}, {}]
    components["responses"] = {
        f"Problem{status}": {
            "description": example["title"],
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": "#/components/schemas/Problem"},
                    "examples": {"problem": {"value": example}},
                }
            },
        }
        for status, example in PROBLEMS.items()
    }
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation)
            for parameter in operation.get("parameters", ()):
                _never_null(parameter["schema"])
    bound(document)
    return document


def _never_null(schema: dict[str, Any]) -> None:
    """What stands in a path, a query or a header is text: it may be left out, but it cannot be null."""
    kinds = [kind for kind in schema.pop("oneOf", ()) if kind != {"type": "null"}]
    schema |= kinds[0] if len(kinds) == 1 else {"oneOf": kinds} if kinds else {}


def _complete(operation: dict[str, Any]) -> None:
    name = operation["operationId"].removesuffix(_SHORT)
    operation["summary"] = _words(name)
    answers = operation["responses"]
    answers.pop("400", None)  # the framework's own form, which is never sent
    [found] = [status for status in answers if status.startswith("2")]
    for status, example in ANSWERS[name].items():
        answer = answers.setdefault(status, {"description": "", "content": answers[found]["content"]})
        answer["description"] = _DESCRIPTIONS.get((name, status), "Accepted." if status == "202" else "As it is now.")
        answer["content"] = {
            "application/json": dict(answer["content"]["application/json"], examples={"answer": {"value": example}})
        }
        if status == "202":
            answer["headers"] = dict(_HEADERS)
    if name == "getHealth":
        operation["security"] = []
        answers["503"] = {"$ref": "#/components/responses/Problem503"}
        return
    for status in sorted((*_ALWAYS, *_REFUSALS.get(name, ()))):
        answers[status] = {"$ref": f"#/components/responses/Problem{status}"}
    if name in REQUESTS:
        _show_requests(operation, name)


_BODIES: dict[str, type[msgspec.Struct]] = {
    "enqueueTask": TaskRequest,
    "enqueueTasks": BatchRequest,
    "cancelTask": CancelRequest,
    "cancelJob": CancelRequest,
    "retryTask": fs.RetryTaskRequest,
    "retryTasks": fs.BulkRequest,
    "cancelTasks": fs.BulkRequest,
    "cancelWorkflows": fs.BulkRequest,
    "terminateWorkflows": fs.BulkRequest,
    "deleteTasks": fs.BulkRequest,
    "startWorkflow": ws.WorkflowRequest,
    "signalWorkflow": ws.SignalRequest,
    "queryWorkflow": ws.QueryRequest,
    "updateWorkflow": ws.UpdateRequest,
    "cancelWorkflow": ws.EndRequest,
    "terminateWorkflow": ws.EndRequest,
    "pauseWorkflow": ws.PauseRequest,
    "resumeWorkflow": ws.PauseRequest,
    "resetWorkflow": ws.ResetRequest,
    "resolveWorkflow": ws.ResolveRequest,
    "completeActivity": ws.ActivityRequest,
    "recordEvents": es.FeedRequest,
    "addWebhook": es.WebhookRequest,
    "disableWebhook": es.DisableRequest,
    "replayWebhook": es.ReplayRequest,
    "createSchedule": ss.ScheduleRequest,
    "putSchedule": ss.ScheduleBody,
    "updateSchedule": ss.ScheduleChanges,
    "pauseSchedule": ss.NoteRequest,
    "resumeSchedule": ss.NoteRequest,
    "triggerSchedule": ss.TriggerRequest,
    "backfillSchedule": ss.BackfillRequest,
    "previewTimes": ss.PreviewRequest,
    "setLimit": ls.LimitRequest,
    "switchBreaker": ls.SwitchRequest,
    "addSearchAttribute": SearchAttributeRequest,
    "setQueueOwner": OwnerRequest,
    "pauseQueue": ls.PauseQueueRequest,
    "resumeQueue": ls.PauseQueueRequest,
}
"""What operations read; handlers read it themselves, so the framework does not know."""

_OPTIONAL = (
    CancelRequest, ws.EndRequest, ws.PauseRequest, ws.ActivityRequest, fs.RetryTaskRequest, fs.BulkRequest,
    ss.NoteRequest, ss.TriggerRequest, es.FeedRequest, es.DisableRequest, es.ReplayRequest,
    ls.PauseQueueRequest,
)  # fmt: skip
"""Bodies that may be left out."""

_DESCRIPTIONS = {
    ("createSchedule", "201"): "It is made.",
    ("createSchedule", "200"): "It was made before.",
    ("putSchedule", "201"): "It is made.",
    ("retryTasks", "200"): "What a dry run counted.",
    ("cancelTasks", "200"): "What a dry run counted.",
    ("cancelWorkflows", "200"): "What a dry run counted.",
    ("terminateWorkflows", "200"): "What a dry run counted.",
    ("deleteTasks", "200"): "What a dry run counted.",
    ("getJob", "202"): "It is still open.",
    ("getJob", "200"): "It has closed.",
    ("getJobResult", "200"): "What the job returned.",
    ("getJobResult", "202"): "It is still open.",
    ("getWorkflowResult", "200"): "What the workflow returned.",
    ("getWorkflowResult", "202"): "It is still open.",
    ("updateWorkflow", "200"): "It is completed.",
    ("updateWorkflow", "202"): "There is no answer yet.",
    ("queryWorkflow", "200"): "What the code answered.",
}


def _show_requests(operation: dict[str, Any], name: str) -> None:
    body = {
        "schema": {"$ref": f"#/components/schemas/{_BODIES[name].__name__}"},
        "examples": {title: {"value": value} for title, value in REQUESTS[name].items()},
    }
    required = _BODIES[name] not in _OPTIONAL
    operation["requestBody"] = {"required": required, "content": {"application/json": body}}


def _words(name: str) -> str:
    """enqueueTask -> Enqueue task."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).capitalize()
