"""The end of an activity, brought about by somebody else than the worker that began it: a person, a webhook."""

from __future__ import annotations

from perdure.core.errors import from_problem
from perdure.core.messages import Beat, Complete, Completion, Heartbeat
from perdure.core.model import Failure, Payloads, Progress
from perdure.core.workflow_messages import CompleteActivity
from perdure.sdk.failure import to_failure
from perdure.sdk.handle import Runner
from perdure.sdk.hints import of_value
from perdure.sdk.part import AsyncPart


class AsyncActivityHandle:
    """Ends one attempt by its token, or the running attempt by its ids; made by `get_activity_handle`."""

    def __init__(
        self,
        client: AsyncPart,
        token: bytes | None,
        workflow_id: str | None,
        activity_id: str | None,
        run_id: str | None,
    ) -> None:
        if (token is None) == (workflow_id is None or activity_id is None):
            raise TypeError("give the token, or workflow_id and activity_id")
        self._client = client
        self._token = token
        self._workflow_id = workflow_id or ""
        self._activity_id = activity_id or ""
        self._run_id = run_id

    async def complete(self, result: object = None) -> None:
        """It succeeded. LeaseLost when the attempt is over by now; by ids NotFound, or IllegalMove when none runs."""
        await self._end("succeeded", result=self._client.converter.to_payloads(result, "result", of_value(result)))

    async def fail(self, error: BaseException | str) -> None:
        """The attempt failed; whether another one follows is the policy's business, as if its worker had said so."""
        failure = Failure(message=error) if isinstance(error, str) else to_failure(error)
        await self._end("failed", failure=failure)

    async def report_canceled(self) -> None:
        """It ended because it was asked to cancel. InvalidArgument when nobody asked."""
        await self._end("canceled")

    async def heartbeat(self, progress: Progress | None = None) -> str:
        """A sign of life; "continue", "cancel" (end it soon) or "lost". Only by the token."""
        if self._token is None:
            raise TypeError("a heartbeat needs the token")
        body = Heartbeat(0, [Beat(self._token, progress)])
        return (await (await self._client.service()).heartbeat(body)).actions[0]

    async def _end(self, outcome: str, result: Payloads = (), failure: Failure | None = None) -> None:
        service = await self._client.service()
        if self._token is None:
            await service.complete_activity(
                CompleteActivity(self._workflow_id, self._activity_id, outcome, self._run_id, result, failure)
            )
            return
        body = Complete([Completion(self._token, outcome, result=result, failure=failure)])
        [answer] = (await service.complete(body)).outcomes
        if answer.error is not None:
            raise from_problem(answer.error)


class ActivityHandle:
    """AsyncActivityHandle for code without an event loop."""

    def __init__(self, handle: AsyncActivityHandle, run: Runner) -> None:
        self._handle = handle
        self._run = run

    def complete(self, result: object = None) -> None:
        """See AsyncActivityHandle.complete."""
        self._run(self._handle.complete(result))

    def fail(self, error: BaseException | str) -> None:
        """See AsyncActivityHandle.fail."""
        self._run(self._handle.fail(error))

    def report_canceled(self) -> None:
        """See AsyncActivityHandle.report_canceled."""
        self._run(self._handle.report_canceled())

    def heartbeat(self, progress: Progress | None = None) -> str:
        """See AsyncActivityHandle.heartbeat."""
        return self._run(self._handle.heartbeat(progress))
