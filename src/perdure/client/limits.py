"""What the protocol has for limits: the calls, and the calls over one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core import limit_messages as lm
from perdure.core.body import Body


class LimitService(Protocol):
    """See the bodies in core/limit_messages.py."""

    async def limits(self, body: lm.ListLimits) -> lm.LimitsReply: ...

    async def set_limit(self, body: lm.SetLimit) -> lm.LimitReply: ...

    async def pause_limit(self, body: lm.PauseLimit) -> lm.LimitReply: ...

    async def delete_limit(self, body: lm.DeleteLimit) -> lm.LimitReply:
        """NotFound when there is no such limit."""
        ...

    async def switch_breaker(self, body: lm.SwitchBreaker) -> lm.LimitReply:
        """NotFound when the type has no breaker."""
        ...


class LimitCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def limits(self, body: lm.ListLimits) -> lm.LimitsReply:
        reply: lm.LimitsReply = await self._ask("limits", body)
        return reply

    async def set_limit(self, body: lm.SetLimit) -> lm.LimitReply:
        reply: lm.LimitReply = await self._ask("set_limit", body)
        return reply

    async def pause_limit(self, body: lm.PauseLimit) -> lm.LimitReply:
        reply: lm.LimitReply = await self._ask("pause_limit", body)
        return reply

    async def delete_limit(self, body: lm.DeleteLimit) -> lm.LimitReply:
        reply: lm.LimitReply = await self._ask("delete_limit", body)
        return reply

    async def switch_breaker(self, body: lm.SwitchBreaker) -> lm.LimitReply:
        reply: lm.LimitReply = await self._ask("switch_breaker", body)
        return reply
