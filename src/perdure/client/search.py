"""What the protocol has for searches: the calls, and the calls over one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from perdure.core import messages as m
from perdure.core import search_messages as s
from perdure.core.body import Body


class SearchService(Protocol):
    """See the bodies in core/search_messages.py."""

    async def count(self, body: s.Count) -> s.CountReply: ...

    async def count_workflows(self, body: s.CountWorkflows) -> s.CountReply: ...

    async def search_attributes(self, body: s.ListSearchAttributes) -> s.SearchAttributes: ...

    async def add_search_attribute(self, body: s.AddSearchAttribute) -> s.SearchAttribute:
        """Conflict when the name has another type, or when there are too many."""
        ...

    async def remove_search_attribute(self, body: s.RemoveSearchAttribute) -> m.Done:
        """NotFound when it is not registered."""
        ...


class SearchCalls(ABC):
    """A part of client/calls.py."""

    @abstractmethod
    async def _ask(self, op: str, body: Body) -> Any: ...

    async def count(self, body: s.Count) -> s.CountReply:
        reply: s.CountReply = await self._ask("count", body)
        return reply

    async def count_workflows(self, body: s.CountWorkflows) -> s.CountReply:
        reply: s.CountReply = await self._ask("count_workflows", body)
        return reply

    async def search_attributes(self, body: s.ListSearchAttributes) -> s.SearchAttributes:
        reply: s.SearchAttributes = await self._ask("search_attributes", body)
        return reply

    async def add_search_attribute(self, body: s.AddSearchAttribute) -> s.SearchAttribute:
        reply: s.SearchAttribute = await self._ask("add_search_attribute", body)
        return reply

    async def remove_search_attribute(self, body: s.RemoveSearchAttribute) -> m.Done:
        reply: m.Done = await self._ask("remove_search_attribute", body)
        return reply
