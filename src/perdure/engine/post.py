"""Sends one message to one endpoint, and says what became of it.

Whoever may register an endpoint must not reach with it what only this server can reach. So a name is resolved once, its
addresses are checked, and the connection goes to one of those that were; redirects are not followed, and of an answer
only the beginning is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from perdure.core.errors import InvalidArgument
from perdure.core.webhooks import sign

SECONDS = 10.0  #: for all of it
_ANSWER_BYTES = 16 * 1024
_MAX_URL = 2_000
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class _RefusedError(OSError):
    """An address that is none of the open internet."""


def check_url(url: str, *, private: bool) -> str:
    """InvalidArgument unless it is an http(s) URL that may be sent to, as far as that can be seen without a look-up."""
    limit = f"http:// or https:// with a host, no user, at most {_MAX_URL} characters"
    if not isinstance(url, str) or len(url) > _MAX_URL or not url.isprintable() or not url.isascii() or " " in url:
        raise InvalidArgument("url cannot be used", field="url", limit=limit, kind=type(url).__name__)
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as fault:
        raise InvalidArgument(f"url: {fault}", field="url", limit=limit, kind="str") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.password is not None:
        raise InvalidArgument(f"url is {url[:100]!r}", field="url", limit=limit, kind="str")
    if not private and (host == "localhost" or _is_inside(host)):
        raise InvalidArgument(
            f"{host} is not on the open internet; start the server with --webhooks-to-private to allow it",
            field="url", limit="a public address", kind="str",
        )  # fmt: skip
    return url


def _is_inside(host: str) -> bool:
    """Whether it is an address, and none of the open internet."""
    try:
        return not is_public(host)
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet; also behind what carries IPv4 in IPv6. ValueError when it is no
    address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


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
