"""The dashboard as an ASGI app: who may see what, one answer a request, and pages that tell of their changes.

Every page works without a script. Scripts are files of ours alone: the content security policy allows nothing inline
and nothing from elsewhere, so text that found a way around the escaping could still run nothing (field case B153). A
page that is asked for as server-sent events is rendered again and again, and sent when it has changed; there is no
second description of what a page shows.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from perdure.core.errors import (
    InvalidArgument,
    NotFound,
    PerdureError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)
from perdure.dashboard import assets, pages
from perdure.dashboard.render import render
from perdure.dashboard.request import MAX_FORM, Request, cookie, link, read_form, read_request
from perdure.dashboard.trends import Trends
from perdure.dashboard.visit import Door, Download, Page, Visit

log = logging.getLogger("perdure.dashboard")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

LOOK_SECONDS = 2.0
"""Between two looks whether a page has changed."""
FREQUENT = 20
"""Pages that are looked at so often. With more of them looks are rarer, so that they cost the server no more."""
MAX_LIVE = 100
"""Pages that a server keeps up to date at once."""
SESSION, FORM, NAMESPACE = "perdure-session", "perdure-form", "perdure-namespace"
"""Cookies: who has signed in, what forms must carry too, and whose tasks are shown where nobody needs to sign in."""
BEAT_SECONDS = 15.0
"""Longest time without a sign of life: a proxy takes a long silence for the end."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: list[Header] = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_HTML = (b"content-type", b"text/html; charset=utf-8")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_NOT_KEPT = (b"cache-control", b"no-store")


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: list[Header]
    body: bytes = b""


def invite(*, read_only: bool = False) -> Callable[[Door], Dashboard]:
    """What makes the dashboard of a server. `read_only`: it shows everything and changes nothing."""
    return lambda door: Dashboard(door, read_only=read_only)


class Dashboard:
    """See the module."""

    def __init__(self, door: Door, *, read_only: bool = False) -> None:
        self._door = door
        self._read_only = read_only
        self._stopping = asyncio.Event()
        self._live = 0
        self._trends = Trends()

    def owns(self, path: str) -> bool:
        """Whether a path is one of a page."""
        return path[1:] in _PATHS or path.startswith("/static/")

    def stop(self) -> None:
        """End the pages that are kept up to date; browsers come back."""
        self._stopping.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = read_request(scope)
            if request.method == "GET" and request.wants_events and request.page in pages.PAGES:
                await self._keep_telling(self._visit(request), receive, send)
                return
            answer = await self._answer(request, receive)
        except PerdureError as error:
            answer = Answer(error.status, [_TEXT], f"{error.title}: {error.detail}\n".encode("utf-8", "replace"))
        kept = [] if any(name == b"cache-control" for name, _ in answer.headers) else [_NOT_KEPT]
        headers = [*_HEADERS, *kept, *answer.headers, (b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    # -------------------------------------------------------------------------------------------------------- answers
    async def _answer(self, request: Request, receive: Receive) -> Answer:
        if request.page.startswith("static/"):
            return _asset(request)
        if request.method == "POST":
            request.form = read_form(await _body(receive))
            return await self._act(request)
        if request.method != "GET":
            return Answer(405, [_TEXT, (b"allow", b"GET, HEAD, POST")], b"method not allowed\n")
        if request.page == "login":
            return self._page(request, self._login(request, ""))
        return await self._show(request)

    async def _show(self, request: Request) -> Answer:
        """The page that is asked for."""
        try:
            visit = self._visit(request)
        except Unauthenticated:
            here = link(request.page, **request.query)
            if request.is_cross_site:  # its own cookies come with a second request, that this page makes
                return Answer(200, [_HTML], render(Page("again.html", "One moment", {"here": here})).encode())
            return _redirect(link("login", to=here))
        try:
            if request.page not in pages.PAGES:
                raise NotFound("this address takes forms only")
            page = await pages.PAGES[request.page](visit)
        except PerdureError as error:
            return self._page(request, _problem(error), visit, error.status)
        if isinstance(page, Download):
            saved = f'attachment; filename="{page.name}"'.encode("ascii", "replace")
            return Answer(200, [_TEXT, (b"content-disposition", saved)], page.text.encode("utf-8", "replace"))
        return self._page(request, page, visit)

    async def _act(self, request: Request) -> Answer:
        """Do what a form says, and lead to the page that shows it."""
        token = request.cookies.get(FORM, "")
        sent = request.form.pop("token", "")
        if not request.is_our_own() or not token or not hmac.compare_digest(token.encode(), sent.encode()):
            raise PermissionDenied("this form was not sent by a page of this server; load the page again")
        match request.page:
            case "login":
                return self._sign_in(request)
            case "logout":
                return _redirect("login", cookie(SESSION, "", secure=request.is_secure))
            case "namespace":
                name = request.form.get("namespace", "")
                self._door.enter(request.cookies.get(SESSION, ""), name or "default")  # is it a name at all?
                return _redirect("./", cookie(NAMESPACE, name.encode().hex(), secure=request.is_secure))
            case page if page not in pages.ACTIONS:
                raise NotFound("there is no such action")
        visit = self._visit(request)
        if self._read_only:
            return self._page(request, _problem(PermissionDenied("this dashboard is read-only")), visit, 403)
        try:
            outcome = await pages.ACTIONS[request.page](visit)
        except PerdureError as error:
            return self._page(request, _problem(error), visit, error.status)
        return _redirect(outcome) if isinstance(outcome, str) else self._page(request, outcome, visit)

    def _sign_in(self, request: Request) -> Answer:
        try:
            session = self._door.sign_in(request.form.get("key", "").strip())
        except Unauthenticated as error:
            return self._page(request, self._login(request, error.detail), status=401)
        to = request.form.get("to", "")
        known = to.partition("?")[0] in {page or "./" for page in pages.PAGES}
        return _redirect(to if known else "./", cookie(SESSION, session, secure=request.is_secure))

    def _login(self, request: Request, why: str) -> Page:
        to = request.query.get("to") or request.form.get("to", "")
        return Page("login.html", "Sign in", {"why": why, "to": to, "locked": self._door.locked})

    def _page(self, request: Request, page: Page, visit: Visit | None = None, status: int = 200) -> Answer:
        """A page, with the cookie that its forms need."""
        token = request.cookies.get(FORM) or secrets.token_urlsafe(24)
        headers = [_HTML]
        if token != request.cookies.get(FORM):
            headers.append(cookie(FORM, token, secure=request.is_secure))
        if visit is not None:
            visit.token = token
        return Answer(status, headers, render(page, visit=visit, token=token).encode("utf-8", "replace"))

    def _visit(self, request: Request) -> Visit:
        """Unauthenticated when who asks has to sign in first."""
        namespace = _unhex(request.cookies.get(NAMESPACE, "")) or "default"
        namespace, service = self._door.enter(request.cookies.get(SESSION, ""), namespace)
        token = request.cookies.get(FORM, "")
        return Visit(request, service, namespace, token, self._door.locked, self._read_only, self._trends)

    # ---------------------------------------------------------------------------------------------------- live pages
    async def _keep_telling(self, visit: Visit, receive: Receive, send: Send) -> None:
        """The page as it is, and again whenever it has changed, until its reader leaves or the server stops."""
        if self._live >= MAX_LIVE:
            raise ResourceExhausted("too many pages are kept up to date", limit=f"{MAX_LIVE} pages")
        self._live += 1
        gone = asyncio.create_task(_until_gone(receive))
        try:
            headers = [*_HEADERS, (b"content-type", b"text/event-stream"), _NOT_KEPT, (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for frame in self._changes(visit, gone):
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._live -= 1
            gone.cancel()

    async def _changes(self, visit: Visit, gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
        stopping = asyncio.create_task(self._stopping.wait())
        last, sent = b"", 0.0
        try:
            while not (gone.done() or stopping.done()):
                try:
                    visit = msgspec.structs.replace(self._visit(visit.request), request_id=visit.request_id)
                    page = await pages.PAGES[visit.request.page](visit)
                except PerdureError as error:
                    log.info("a page is not kept up to date any more: %s", error)
                    return
                if isinstance(page, Download):
                    return
                html = render(page, visit=visit, token=visit.token)
                digest = hashlib.sha256(html.encode("utf-8", "replace")).digest()
                now = time.monotonic()
                if digest != last or now - sent >= BEAT_SECONDS:
                    yield b": alive\n\n" if digest == last else f"data: {json.dumps(html)}\n\n".encode()
                    last, sent = digest, now
                pause = LOOK_SECONDS * max(1.0, self._live / FREQUENT)
                await asyncio.wait((gone, stopping), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()


_PATHS = {*pages.PAGES, *pages.ACTIONS, "login", "logout", "namespace"}


def _problem(error: PerdureError) -> Page:
    return Page("problem.html", error.title, {"problem": error.problem()})


def _redirect(to: str, *headers: Header) -> Answer:
    """To a page beside this one, which the browser asks for by GET. What has no place in a header is quoted."""
    return Answer(303, [(b"location", quote(to, safe="/?&=%+#").encode()), *headers])


def _asset(request: Request) -> Answer:
    found = assets.FILES.get(request.page.removeprefix("static/"))
    if found is None or request.method != "GET":
        return Answer(404, [_TEXT], b"not found\n")
    kept = (b"cache-control", b"public, max-age=31536000, immutable")  # another content has another name
    return Answer(200, [(b"content-type", found.type.encode()), kept], found.content)


async def _body(receive: Receive) -> bytes:
    """The body of a request; what is too large is read on to MAX_FORM and a byte, which `read_form` refuses."""
    body = b""
    while len(body) <= MAX_FORM:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidArgument("the form was cut off", field="form", limit="a whole form")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return body


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _unhex(text: str) -> str:
    try:
        return bytes.fromhex(text).decode()
    except ValueError:
        return ""
