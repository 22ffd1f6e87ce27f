"""A visit: a request of somebody who may make it, and what a page needs to answer it."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple, Protocol

import msgspec

from perdure.client.base import Service
from perdure.core.errors import InvalidArgument
from perdure.dashboard.request import Request, link, whole_number
from perdure.dashboard.trends import Trends


class Door(Protocol):
    """The way to the service; see api/door.py."""

    @property
    def locked(self) -> bool: ...

    def sign_in(self, key: str) -> str: ...

    def enter(self, session: str, namespace: str) -> tuple[str, Service]: ...


class Page(NamedTuple):
    """A page: the name of its template, its title, and what the template shows."""

    template: str
    title: str
    data: dict[str, Any]


class Download(NamedTuple):
    """A value as it is, for who wants all of it."""

    name: str
    text: str


class Visit(msgspec.Struct):
    """`token` is what forms carry to prove that they are ours, `request_id` makes a form that is sent twice one
    request; `locked`: somebody has signed in."""

    request: Request
    service: Service
    namespace: str
    token: str
    locked: bool
    read_only: bool
    trends: Trends
    request_id: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))

    def get(self, name: str) -> str | None:
        """A field of the query, or None."""
        return self.request.query.get(name)

    def need(self, name: str) -> str:
        """A field of the query; InvalidArgument without it."""
        return _needed(self.request.query, name)

    def field(self, name: str) -> str:
        """A field of the form that was sent; InvalidArgument without it."""
        return _needed(self.request.form, name)

    def given(self, name: str) -> str:
        """A field of the form that may be empty."""
        return self.request.form.get(name, "")

    def number(self, name: str, default: int) -> int:
        """A whole number of the query, 0 or more; InvalidArgument for anything else."""
        text = self.get(name)
        return default if text is None else whole_number(text, name)

    def given_number(self, name: str) -> int | None:
        """The same of the form; None where it was left empty."""
        text = self.given(name)
        return whole_number(text, name) if text else None

    def here(self, **changes: object) -> str:
        """This page with other fields in its query; None leaves one out."""
        return link(self.request.page, **{**self.request.query, "done": None, **changes})


def _needed(fields: dict[str, str], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise InvalidArgument(f"{name} is missing", field=name, limit="a value", kind="null")
    return value
