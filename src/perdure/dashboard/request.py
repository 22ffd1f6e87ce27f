"""A request of a browser, as the pages see it.

All pages lie in one folder, so every link is a bare name with a query, and the dashboard works below any path of a
proxy without being told of it. For the same reason cookies have no path: browsers then take the folder's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from perdure.core.errors import InvalidArgument, PayloadTooLarge

Headers = Mapping[str, str]
MAX_FORM = 1024 * 1024
"""Bytes of a form: an input of 256 KiB, percent-encoded."""
_MAX_FIELDS = 100


class Request(msgspec.Struct):
    """`page` is the last part of the path: "" is the overview. Fields that were left empty are not in `query` and
    `form`."""

    method: str
    page: str
    query: dict[str, str]
    headers: Headers
    cookies: dict[str, str]
    form: dict[str, str] = {}

    @property
    def is_secure(self) -> bool:
        """Whether the browser came by HTTPS."""
        return self.headers.get("x-forwarded-proto", "").lower() == "https"

    @property
    def wants_events(self) -> bool:
        """Whether it asks to be told of every change of the page."""
        return "text/event-stream" in self.headers.get("accept", "")

    @property
    def is_cross_site(self) -> bool:
        """Whether another site's page led here: browsers then keep cookies back."""
        return self.headers.get("sec-fetch-site", "") == "cross-site"

    def is_our_own(self) -> bool:
        """Whether a form that was sent was on a page of ours, as far as the browser tells. Others' pages cannot set
        these headers."""
        site, origin = self.headers.get("sec-fetch-site"), self.headers.get("origin")
        if site is not None:
            return site in ("same-origin", "none")
        if origin is None:
            return True  # no browser; the token in the form decides
        ours = (self.headers.get("host", ""), self.headers.get("x-forwarded-host", ""))
        return bool(netloc := urlsplit(origin).netloc) and netloc in ours


def read_request(scope: Mapping[str, Any]) -> Request:
    """The request of an ASGI scope, without its form. InvalidArgument for a query of too many fields."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return Request(
        "GET" if scope["method"] == "HEAD" else scope["method"],
        scope["path"].removeprefix("/"),
        fields(scope["query_string"].decode("latin-1"), "query"),
        headers,
        _cookies(headers.get("cookie", "")),
    )


def fields(text: str, what: str) -> dict[str, str]:
    """The fields of a query or a form that were filled in; InvalidArgument when there are too many. Bytes that are no
    text are replaced: nothing has a name like that."""
    try:
        found = parse_qsl(text, errors="replace", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise InvalidArgument(f"too many fields in the {what}", field=what, limit=f"{_MAX_FIELDS} fields") from None
    return {name: value for name, value in found if value}


def read_form(body: bytes) -> dict[str, str]:
    """The fields of a form; PayloadTooLarge beyond MAX_FORM bytes."""
    if len(body) > MAX_FORM:
        raise PayloadTooLarge("the form is too large", field="form", limit=f"{MAX_FORM} bytes", kind="bytes")
    return fields(body.decode("latin-1"), "form")


def link(page: str, /, **query: object) -> str:
    """A page's address, relative to any other page. A field of its query may have any name."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "", False)}
    return f"{page or './'}{'?' if given else ''}{urlencode(given)}"


def whole_number(text: str, field: str) -> int:
    """What somebody wrote as a number, 0 or more; InvalidArgument for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise InvalidArgument(f"{field} is {text[:50]!r}", field=field, limit="a number", kind="str")
    return int(text)


def cookie(name: str, value: str, *, secure: bool) -> tuple[bytes, bytes]:
    """A header that sets a cookie that scripts cannot read and other sites cannot have sent; empty, it is gone."""
    end = "" if value else "; Max-Age=0"
    secured = "; Secure" if secure else ""
    return b"set-cookie", f"{name}={value}; HttpOnly; SameSite=Strict{secured}{end}".encode("latin-1")


def _cookies(header: str) -> dict[str, str]:
    """Ours hold plain characters only. Those of other programs on this host may hold anything, which the standard
    library's reader stops at."""
    parts = (part.partition("=") for part in header.split(";"))
    return {name.strip(): value.strip() for name, _, value in parts}
