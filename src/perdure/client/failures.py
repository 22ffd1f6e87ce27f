"""What the protocol has for dead letters, actions on many jobs and the standing checks: the calls, and the calls over
one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core import doctor_messages as d
from perdure.core import failure_messages as f
from perdure.core.body import Body


class FailureService(Protocol):
    """See the bodies in core/failure_messages.py and core/doctor_messages.py."""

    async def failures(self, body: f.ListFailures) -> f.FailurePage: ...

    async def start_bulk(self, body: f.StartBulk) -> f.BulkView:
        """InvalidArgument for a filter that no job can pass which the action is for."""
        ...

    async def get_bulk(self, body: f.GetBulk) -> f.BulkView:
        """NotFound when there is no such action. To cancel one is to `cancel` it by its id."""
        ...

    async def find_bulk(self, body: f.FindBulk) -> f.BulkPage: ...

    async def doctor(self, body: d.Doctor) -> d.DoctorReply: ...


class FailureCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def failures(self, body: f.ListFailures) -> f.FailurePage:
        reply: f.FailurePage = await self._ask("failures", body)
        return reply

    async def start_bulk(self, body: f.StartBulk) -> f.BulkView:
        reply: f.BulkView = await self._ask("start_bulk", body)
        return reply

    async def get_bulk(self, body: f.GetBulk) -> f.BulkView:
        reply: f.BulkView = await self._ask("get_bulk", body)
        return reply

    async def find_bulk(self, body: f.FindBulk) -> f.BulkPage:
        reply: f.BulkPage = await self._ask("find_bulk", body)
        return reply

    async def doctor(self, body: d.Doctor) -> d.DoctorReply:
        reply: d.DoctorReply = await self._ask("doctor", body)
        return reply
