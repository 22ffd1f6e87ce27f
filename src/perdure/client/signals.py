"""What the protocol has for golden signals: the call, and the call over one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core.body import Body
from perdure.core.signal_messages import GoldenSignals, GoldenSignalsReply


class SignalService(Protocol):
    """See the bodies in core/signal_messages.py."""

    async def golden_signals(self, body: GoldenSignals) -> GoldenSignalsReply: ...


class SignalCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def golden_signals(self, body: GoldenSignals) -> GoldenSignalsReply:
        reply: GoldenSignalsReply = await self._ask("golden_signals", body)
        return reply
