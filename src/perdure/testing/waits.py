"""Calls that wait for something are answered by making it happen: what is due runs, and the clock jumps, until it has.

A call from inside a handler is another matter. What is due, and the jumps, are then the business of the run around it;
the handler lends its slot meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.api.service import Service
from perdure.core import ids
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.errors import WaitTimeout
from perdure.sdk.logs import RUNNING

if TYPE_CHECKING:
    from perdure.testing.stage import Stage

OPS = frozenset({"get", "result_workflow", "update_workflow", "query_workflow"})
"""The calls whose answer may be held back."""
_STAGES = ("admitted", "accepted", "completed")
_NOTHING_LEFT = "nothing is left that could happen, and"


class Waits:
    """The calls of one stage; `server` is its service."""

    def __init__(self, stage: Stage, server: Service) -> None:
        self._stage = stage
        self._server = server

    async def get(self, body: m.Get) -> m.TaskView:
        """A task, run to its end."""
        look = replace(body, wait=0.0)
        if RUNNING.get() is not None:
            async with self._stage.lent_slot(ids.parse(body.task_id)):
                return await self._server.get(body)

        async def is_closed() -> bool:
            return (await self._server.get(replace(look, payload=False))).closed_at is not None

        if not await is_closed():
            await self._stage.drive(is_closed)
        view = await self._server.get(look)
        if view.closed_at is None:
            raise WaitTimeout(f"{_NOTHING_LEFT} the task is still {view.state}")
        return view

    async def result_workflow(self, body: w.ResultWorkflow) -> w.WorkflowView:
        """A workflow run to its end; or the chain of its runs to the end of the last one."""
        look = replace(body, wait=0.0)
        if RUNNING.get() is not None:
            while (view := await self._server.result_workflow(look)).closed_at is None:
                one = replace(body, run_id=view.run_id, follow=False)
                async with self._stage.lent_slot(ids.parse(view.run_id)):
                    await self._server.result_workflow(one)
            return view

        async def is_closed() -> bool:
            return (await self._server.result_workflow(look)).closed_at is not None

        if not await is_closed():
            await self._stage.drive(is_closed)
        view = await self._server.result_workflow(look)
        if view.closed_at is None:
            view = await self._server.describe_workflow(w.DescribeWorkflow(view.workflow_id, view.run_id))
            raise WaitTimeout(f"{_NOTHING_LEFT} the workflow is still {view.status}: it waits for {view.waiting_for}")
        return view

    async def update_workflow(self, body: w.UpdateWorkflow) -> w.UpdateReply:
        """An update, until it has reached the stage that is asked for."""
        if RUNNING.get() is not None:
            async with self._stage.lent_slot():
                return await self._server.update_workflow(body)
        reply = await self._server.update_workflow(replace(body, wait=0.0))
        look = replace(body, wait=0.0, run_id=reply.run_id)
        wanted = _STAGES.index(body.stage)

        async def is_there() -> bool:
            return _STAGES.index((await self._server.update_workflow(look)).stage) >= wanted

        if not await is_there():
            await self._stage.drive(is_there)
        reply = await self._server.update_workflow(look)
        if _STAGES.index(reply.stage) < wanted:
            raise WaitTimeout(f"{_NOTHING_LEFT} the update is only {reply.stage}")
        return reply

    async def query_workflow(self, body: w.QueryWorkflow) -> w.QueryReply:
        """The answer of the code once it has seen all that is there for it now. The clock stands still."""
        if RUNNING.get() is not None:
            async with self._stage.lent_slot():
                return await self._server.query_workflow(body)
        await self._stage.drive(None, self._stage.clock(), stuck=True)
        view = await self._server.describe_workflow(w.DescribeWorkflow(body.workflow_id, body.run_id))
        if view.history_length == 1:  # its start is delayed
            return await self._server.query_workflow(replace(body, wait=0.0))
        asking = asyncio.create_task(self._server.query_workflow(body))

        async def is_answered() -> bool:
            return asking.done()

        try:
            await self._stage.drive(is_answered, self._stage.clock(), stuck=True)
            return await asking
        finally:
            asking.cancel()
