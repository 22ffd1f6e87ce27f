"""The bodies of the wire protocol that are about searches; docs/search.md has the language."""

from __future__ import annotations

from datetime import datetime

from perdure.core.body import Body


class Count(Body):
    """How many tasks pass; the filters of messages.Find."""

    state: str | None = None
    queue: str | None = None
    type: str | None = None
    since: datetime | None = None
    failure_group: str | None = None
    query: str = ""


class CountWorkflows(Body):
    """How many runs pass; the filters of workflow_messages.FindWorkflows."""

    status: str | None = None
    type: str | None = None
    workflow_id: str | None = None
    queue: str | None = None
    since: datetime | None = None
    open: bool = False
    requires_intervention: bool = False
    query: str = ""


class CountReply(Body):
    """Counts stop at 100,000, or where 1,000,000 rows were looked at; then there may be more: `at_least`."""

    count: int
    at_least: bool = False


class ListSearchAttributes(Body):
    """The search attributes that queries may name."""


class SearchAttribute(Body):
    """`type` is Keyword, Int, Double, Bool, Datetime, KeywordList or Text."""

    name: str
    type: str


class SearchAttributes(Body):
    attributes: list[SearchAttribute]  #: by name


class AddSearchAttribute(Body):
    """Let queries name a search attribute. Runs that have it are found at once, also those that were started before.
    Harmless when repeated; another type for a name is a conflict."""

    name: str
    type: str


class RemoveSearchAttribute(Body):
    """Let queries name it no more; runs keep what they have. NotFound when it is not registered."""

    name: str
