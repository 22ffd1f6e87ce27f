"""The OpenAPI document: valid, whole, and its examples are what the server takes and answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from perdure.api import event_schema as es
from perdure.api import failure_schema as fs
from perdure.api import openapi, schema
from perdure.api import schedule_schema as ss
from perdure.api import workflow_schema as ws
from perdure.api.rest_owners import OwnerDocument, OwnerRequest
from perdure.core import messages as m
from perdure.core.errors import Problem, from_problem
from tests.api.calls import Rest

PATHS = {
    "/v1/tasks", "/v1/tasks:batch", "/v1/tasks/{task_id}", "/v1/tasks/{task_id}/cancel", "/v1/tasks/{task_id}/retry",
    "/v1/jobs/{job_id}", "/jobs/{job_id}", "/v1/jobs/{job_id}/cancel", "/jobs/{job_id}/cancel",
    "/v1/jobs/{job_id}/result", "/jobs/{job_id}/result", "/v1/queues", "/v1/workers", "/healthz",
    "/v1/tasks:count", "/v1/workflows:count", "/v1/search-attributes", "/v1/search-attributes/{name}",
    "/v1/limits", "/v1/limits/breaker", "/v1/queues/{queue}/pause", "/v1/queues/{queue}/resume",
    "/v1/queues/{queue}", "/v1/workflows:cancel", "/v1/workflows:terminate",
    "/v1/workflows", "/v1/workflows/{workflow_id}", "/v1/workflows/{workflow_id}/history",
    "/v1/workflows/{workflow_id}/result", "/v1/workflows/{workflow_id}/signal", "/v1/workflows/{workflow_id}/query",
    "/v1/workflows/{workflow_id}/update", "/v1/workflows/{workflow_id}/cancel",
    "/v1/workflows/{workflow_id}/terminate", "/v1/workflows/{workflow_id}/pause",
    "/v1/workflows/{workflow_id}/resume", "/v1/workflows/{workflow_id}/reset", "/v1/workflows/{workflow_id}/resolve",
    "/v1/workflows/{workflow_id}/activities/{activity_id}/complete",
    "/v1/schedules", "/v1/schedules:preview", "/v1/schedules/{schedule_id}", "/v1/schedules/{schedule_id}/pause",
    "/v1/schedules/{schedule_id}/resume", "/v1/schedules/{schedule_id}/trigger",
    "/v1/schedules/{schedule_id}/backfill",
    "/v1/failures", "/v1/tasks:retry", "/tasks:retry", "/v1/tasks:cancel", "/tasks:cancel", "/v1/tasks:delete",
    "/tasks:delete", "/v1/bulk", "/v1/bulk/{action_id}", "/v1/bulk/{action_id}/cancel", "/v1/doctor",
    "/v1/golden-signals",
    "/v1/events", "/v1/events:record", "/v1/tasks/{task_id}/stream", "/v1/webhooks", "/v1/webhooks/{webhook_id}",
    "/v1/webhooks/{webhook_id}/disable", "/v1/webhooks/{webhook_id}/replay", "/v1/webhooks/{webhook_id}/ping",
    "/v1/webhooks/{webhook_id}/dead-letters",
}  # fmt: skip
REQUESTS: dict[str, Any] = {
    "enqueueTask": schema.TaskRequest,
    "enqueueTasks": schema.BatchRequest,
    "cancelTask": schema.CancelRequest,
    "cancelJob": schema.CancelRequest,
    "retryTask": fs.RetryTaskRequest,
    "retryTasks": fs.BulkRequest,
    "cancelTasks": fs.BulkRequest,
    "deleteTasks": fs.BulkRequest,
    "cancelWorkflows": fs.BulkRequest,
    "terminateWorkflows": fs.BulkRequest,
    "setQueueOwner": OwnerRequest,
    "updateSchedule": ss.ScheduleChanges,
    "startWorkflow": ws.WorkflowRequest,
    "signalWorkflow": ws.SignalRequest,
    "queryWorkflow": ws.QueryRequest,
    "updateWorkflow": ws.UpdateRequest,
    "cancelWorkflow": ws.EndRequest,
    "terminateWorkflow": ws.EndRequest,
    "pauseWorkflow": ws.PauseRequest,
    "resumeWorkflow": ws.PauseRequest,
    "resetWorkflow": ws.ResetRequest,
    "completeActivity": ws.ActivityRequest,
    "createSchedule": ss.ScheduleRequest,
    "putSchedule": ss.ScheduleBody,
    "pauseSchedule": ss.NoteRequest,
    "resumeSchedule": ss.NoteRequest,
    "triggerSchedule": ss.TriggerRequest,
    "backfillSchedule": ss.BackfillRequest,
    "previewTimes": ss.PreviewRequest,
    "recordEvents": es.FeedRequest,
    "addWebhook": es.WebhookRequest,
    "disableWebhook": es.DisableRequest,
    "replayWebhook": es.ReplayRequest,
}
ANSWERS: dict[str, Any] = {
    "enqueueTask": schema.AcceptedTask,
    "enqueueTasks": schema.BatchReply,
    "getTask": schema.TaskDocument,
    "listTasks": schema.TaskList,
    "cancelTask": m.CancelReply,
    "retryTask": m.RetryReply,
    "getJob": schema.Job,
    "cancelJob": schema.Job,
    "listQueues": schema.QueueList,
    "listWorkers": schema.WorkerList,
    "getHealth": schema.Health,
    "listFailures": fs.FailureList,
    "listBulkActions": fs.BulkList,
    "getBulkAction": fs.BulkDocument,
    "cancelBulkAction": fs.BulkDocument,
    "runDoctor": fs.DoctorReport,
    "startWorkflow": ws.StartedWorkflow,
    "listWorkflows": ws.WorkflowList,
    "getWorkflow": ws.WorkflowDocument,
    "getWorkflowHistory": ws.HistoryDocument,
    "signalWorkflow": ws.RunDocument,
    "queryWorkflow": ws.QueryDocument,
    "updateWorkflow": ws.UpdateDocument,
    "cancelWorkflow": ws.RunDocument,
    "terminateWorkflow": ws.RunDocument,
    "pauseWorkflow": ws.RunDocument,
    "resumeWorkflow": ws.RunDocument,
    "resetWorkflow": ws.StartedWorkflow,
    "completeActivity": ws.RunDocument,
    "createSchedule": ss.ScheduleChanged,
    "listSchedules": ss.ScheduleList,
    "getSchedule": ss.ScheduleDocument,
    "putSchedule": ss.ScheduleChanged,
    "updateSchedule": ss.ScheduleChanged,
    "setQueueOwner": OwnerDocument,
    "deleteQueueOwner": OwnerDocument,
    "deleteSchedule": ss.ScheduleChanged,
    "pauseSchedule": ss.ScheduleChanged,
    "resumeSchedule": ss.ScheduleChanged,
    "triggerSchedule": ss.TriggeredDocument,
    "backfillSchedule": ss.ScheduleChanged,
    "previewTimes": ss.TimesDocument,
    "listEvents": es.EventList,
    "recordEvents": es.FeedDocument,
    "getTaskStream": es.StreamDocument,
    "addWebhook": es.WebhookDocument,
    "listWebhooks": es.WebhookDocuments,
    "disableWebhook": es.WebhookDocument,
    "replayWebhook": es.WebhookDocument,
    "pingWebhook": es.PingDocument,
    "listWebhookDeadLetters": es.DeadLetterList,
}


@pytest.fixture
async def document(rest: Rest) -> dict[str, Any]:
    found: dict[str, Any] = (await rest("GET", "/openapi.json")).body
    return found


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {op["operationId"]: op for path in document["paths"].values() for op in path.values()}


async def test_it_is_valid_and_has_every_route(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == PATHS


async def test_every_operation_has_words_and_examples(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        assert operation["description"], name
        for status, answer in operation["responses"].items():
            if status.startswith("2"):
                assert answer["content"]["application/json"]["examples"], (name, status)
            else:
                assert answer["$ref"] in {f"#/components/responses/Problem{code}" for code in openapi.PROBLEMS}, name
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]["application/json"]["examples"], name


async def test_callers_say_who_they_are_by_a_key(document: dict[str, Any]) -> None:
    """SEC-02: everywhere but at the health check, which a balancer asks."""
    scheme = document["components"]["securitySchemes"]["apiKey"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert {"apiKey": []} in document["security"]
    open_to_all = [name for name, operation in operations(document).items() if operation.get("security") == []]
    assert open_to_all == ["getHealth"]


async def test_examples_fit_the_schemas_that_they_stand_beside(document: dict[str, Any]) -> None:
    """Found in the document as a reader's tool finds them."""
    bodies = [body for operation in operations(document).values() for body in _bodies(operation)]
    bodies += [
        content for answer in document["components"]["responses"].values() for content in answer["content"].values()
    ]
    assert len(bodies) > 20
    for body in bodies:
        checker = OAS31Validator(body["schema"] | {"components": document["components"]})
        for example in body["examples"].values():
            checker.validate(example["value"])


def _bodies(operation: dict[str, Any]) -> list[dict[str, Any]]:
    answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
    return [part["content"]["application/json"] for part in [*answers, operation.get("requestBody")] if part]


def test_examples_are_of_the_types_that_the_server_uses() -> None:
    """And problems are those that errors make."""
    for name, kind in REQUESTS.items():
        for example in openapi.REQUESTS[name].values():
            msgspec.convert(example, kind)
    for name, kind in ANSWERS.items():
        for example in openapi.ANSWERS[name].values():
            found = msgspec.to_builtins(msgspec.convert(example, kind))
            assert found.keys() == example.keys(), name
    for status, example in openapi.PROBLEMS.items():
        error = from_problem(msgspec.convert(example, Problem))
        assert msgspec.to_builtins(error.problem()) == example
        assert str(error.status) == status


async def test_examples_of_requests_are_accepted(rest: Rest) -> None:
    for example in openapi.REQUESTS["enqueueTask"].values():
        assert (await rest("POST", "/v1/tasks", example)).status == 202
    for example in openapi.REQUESTS["enqueueTasks"].values():
        answer = await rest("POST", "/v1/tasks:batch", example)
        assert all("task_id" in item for item in answer.body["tasks"])
