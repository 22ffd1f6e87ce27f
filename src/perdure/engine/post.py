"""Sends one message to one endpoint, and says what became of it.

Whoever may register an endpoint must not reach with it what only this server can reach. So a name is resolved once, its
addresses are checked, and the connection goes to one of those that were; redirects are not followed, and of an answer
only the beginning is read.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from perdure.core.errors import InvalidArgument
from perdure.core.webhooks import sign
from perdure.engine.endpoints import check_url, is_public

SECONDS = 10.0  #: for all of it
_ANSWER_BYTES = 16 * 1024


class _RefusedError(OSError):
    """An address that is none of the open internet."""


class _Checked(AbstractResolver):
    """Resolves names to addresses of the open internet only."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        checked = [(where, address) for where, _, _, _, address in found if is_public(str(address[0]))]
        if not checked:
            raise _RefusedError(f"{host} is not on the open internet")
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=where, proto=0, flags=socket.AI_NUMERICHOST
            )
            for where, address in checked
        ]

    async def close(self) -> None:
        """Nothing is kept."""


class Sender:
    """Connections to endpoints. `private`: also to those inside."""

    def __init__(self, *, private: bool) -> None:
        self.private = private
        self._session: aiohttp.ClientSession | None = None

    async def send(self, url: str, secret: str, id: str, body: bytes, at: int) -> str:
        """Nothing when the endpoint took it (2xx), else what went wrong. `at` is the second that it is sent in."""
        if self._session is None:
            settings: dict[str, Any] = {} if self.private else {"resolver": _Checked(), "use_dns_cache": False}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, **settings),
                timeout=aiohttp.ClientTimeout(total=SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        headers = {
            "Content-Type": "application/cloudevents+json",
            "User-Agent": "Perdure",
            "webhook-id": id,
            "webhook-timestamp": str(at),
            "webhook-signature": sign(secret, id, at, body),
        }
        try:
            check_url(url, private=self.private)
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
                said = await response.content.read(_ANSWER_BYTES)
        except InvalidArgument as error:
            return error.detail
        except TimeoutError:
            return f"no answer within {SECONDS:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        if 200 <= response.status < 300:
            return ""
        return f"status {response.status}: {said[:200].decode('utf-8', 'replace')}".rstrip(": ")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
