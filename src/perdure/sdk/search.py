"""The client's half for counts and search attributes (docs/search.md). `AsyncSearches` is a part of AsyncClient,
`Searches` of Perdure."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypedDict, Unpack

from perdure.core.search_messages import (
    AddSearchAttribute,
    Count,
    CountReply,
    CountWorkflows,
    ListSearchAttributes,
    RemoveSearchAttribute,
)
from perdure.sdk.part import AsyncPart, Part

AttributeType = Literal["Keyword", "Int", "Double", "Bool", "Datetime", "KeywordList", "Text"]


class TaskCount(TypedDict, total=False):
    """Which tasks are counted; the filters of `find`."""

    state: str | None
    queue: str | None
    type: str | None
    since: datetime | None
    failure_group: str | None
    query: str


class RunCount(TypedDict, total=False):
    """Which runs are counted; the filters of `list_workflows`."""

    status: str | None
    type: str | None
    workflow_id: str | None
    queue: str | None
    since: datetime | None
    open: bool
    requires_intervention: bool
    query: str


class AsyncSearches(AsyncPart):
    """A part of AsyncClient."""

    async def count(self, **filter: Unpack[TaskCount]) -> CountReply:
        """How many tasks pass all filters. A count stops at 100,000, or where a million rows were looked at: then
        `at_least` is true."""
        return await (await self.service()).count(Count(**filter))

    async def count_workflows(self, **filter: Unpack[RunCount]) -> CountReply:
        """How many runs pass all filters; as `count`."""
        return await (await self.service()).count_workflows(CountWorkflows(**filter))

    async def search_attributes(self) -> dict[str, str]:
        """The search attributes that queries may name: names and types."""
        found = await (await self.service()).search_attributes(ListSearchAttributes())
        return {one.name: one.type for one in found.attributes}

    async def add_search_attribute(self, name: str, type: AttributeType) -> None:
        """Let queries name a search attribute of workflows. Runs that have it are found at once. Harmless when
        repeated; Conflict when it is registered with another type."""
        await (await self.service()).add_search_attribute(AddSearchAttribute(name, type))

    async def remove_search_attribute(self, name: str) -> None:
        """Let queries name it no more; runs keep what they have. NotFound when it is not registered."""
        await (await self.service()).remove_search_attribute(RemoveSearchAttribute(name))


class Searches(Part):
    """What Perdure can do about searches: the calls of AsyncSearches, each of which blocks."""

    _app: AsyncSearches

    def count(self, **filter: Unpack[TaskCount]) -> CountReply:
        """See AsyncSearches.count."""
        return self._run(self._app.count(**filter))

    def count_workflows(self, **filter: Unpack[RunCount]) -> CountReply:
        """See AsyncSearches.count_workflows."""
        return self._run(self._app.count_workflows(**filter))

    def search_attributes(self) -> dict[str, str]:
        """See AsyncSearches.search_attributes."""
        return self._run(self._app.search_attributes())

    def add_search_attribute(self, name: str, type: AttributeType) -> None:
        """See AsyncSearches.add_search_attribute."""
        self._run(self._app.add_search_attribute(name, type))

    def remove_search_attribute(self, name: str) -> None:
        """See AsyncSearches.remove_search_attribute."""
        self._run(self._app.remove_search_attribute(name))
