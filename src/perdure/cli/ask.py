"""Commands that ask a server, or a store: the options that say whom, and the call itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

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


def call(
    server: str,
    api_key: str | None,
    namespace: str | None,
    ask: Callable[[AsyncPerdure], Awaitable[T]],
    *,
    makes: bool = False,
) -> T:
    """What a server, or a store, answers. A store that is not there is made only by what puts something into it."""

    async def run() -> T:
        async with AsyncPerdure(server, api_key=api_key, namespace=namespace) as app:
            if app.remote:
                await reach(server)
            elif not makes:
                need_file(server)
            return await ask(app)

    if server.startswith(("http://", "https://")):
        return asyncio.run(run())
    with using(server):
        return asyncio.run(run())
