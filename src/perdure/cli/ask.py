"""Commands that ask a server, or a store: the options that say whom, and the call itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, TypeVar

import typer

from perdure.app import AsyncPerdure
from perdure.cli.reach import reach
from perdure.cli.store import need_file, using

T = TypeVar("T")

Server = Annotated[str, typer.Option(envvar="PERDURE_SERVER", help="URL of the server, or of a store.")]
ApiKey = Annotated[str | None, typer.Option(envvar="PERDURE_API_KEY", help="Where the server wants one.")]
Namespace = Annotated[str | None, typer.Option(help="For servers without API keys.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]

LOCAL = "http://127.0.0.1:7400"


class Whom(NamedTuple):
    """Whom a command asks, and for which namespace."""

    server: Server = LOCAL
    api_key: ApiKey = None
    namespace: Namespace = None


def call(whom: Whom, ask: Callable[[AsyncPerdure], Awaitable[T]], *, makes: bool = False) -> T:
    """What a server, or a store, answers. A store that is not there is made only by what puts something into it."""

    async def run() -> T:
        async with AsyncPerdure(whom.server, api_key=whom.api_key, namespace=whom.namespace) as app:
            if app.remote:
                await reach(whom.server)
            elif not makes:
                need_file(whom.server)
            return await ask(app)

    if whom.server.startswith(("http://", "https://")):
        return asyncio.run(run())
    with using(whom.server):
        return asyncio.run(run())
