"""A reader of pages without a browser: it follows links, keeps cookies, and sends the forms that it finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

import aiohttp


class Form:
    """A form as it stands on a page: where it goes, and the fields that it has filled in."""

    def __init__(self, action: str, method: str) -> None:
        self.action = action
        self.method = method
        self.fields: dict[str, str] = {}


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "form":
            self.forms.append(Form(given.get("action") or "", given.get("method") or "get"))
        elif tag == "input" and self.forms and given.get("name"):
            self.forms[-1].fields[str(given["name"])] = given.get("value") or ""
        elif tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


class Seen:
    """A page that was answered."""

    def __init__(self, status: int, headers: Any, text: str, url: str) -> None:
        self.status, self.headers, self.html, self.url = status, headers, text, url
        parser = _Parser()
        parser.feed(text)
        self.forms, self.links, self.tags = parser.forms, parser.links, parser.tags
        self.text = " ".join(" ".join(parser.words).split())

    def form(self, action: str) -> Form:
        found = [form for form in self.forms if form.action == action]
        assert found, f"no form {action!r} among {[form.action for form in self.forms]}"
        return found[0]

    def offers(self, action: str) -> bool:
        return any(form.action == action for form in self.forms)


class Reader:
    """See the module. `base` ends with a slash."""

    def __init__(self, base: str, session: aiohttp.ClientSession) -> None:
        self.base = base
        self.session = session

    async def get(self, page: str = "", **options: Any) -> Seen:
        async with self.session.get(self.base + page, **options) as answer:
            return Seen(answer.status, answer.headers, await answer.text(), str(answer.url))

    async def post(self, page: str, fields: dict[str, str], **options: Any) -> Seen:
        async with self.session.post(self.base + page, data=fields, **options) as answer:
            return Seen(answer.status, answer.headers, await answer.text(), str(answer.url))

    async def send(self, form: Form, **fields: str) -> Seen:
        """Fill in a form and send it; the answer is the page that it leads to."""
        return await self.post(form.action, {**form.fields, **fields})

    @asynccontextmanager
    async def live(self, page: str) -> AsyncIterator[AsyncIterator[str]]:
        """The page again and again, as it changes."""
        headers = {"Accept": "text/event-stream"}
        async with self.session.get(self.base + page, headers=headers) as answer:
            assert answer.status == 200, answer.status

            async def frames() -> AsyncIterator[str]:
                buffer = b""
                async for chunk in answer.content.iter_any():
                    buffer += chunk
                    while b"\n\n" in buffer:
                        frame, _, buffer = buffer.partition(b"\n\n")
                        yield frame.decode()

            yield frames()


@asynccontextmanager
async def reader(url: str) -> AsyncIterator[Reader]:
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, too
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Reader(url.rstrip("/") + "/", session)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, half a minute at most, until it is so."""
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)
