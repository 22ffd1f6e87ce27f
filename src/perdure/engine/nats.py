"""Publishes messages to NATS JetStream, and says what became of them.

An endpoint `nats://host:4222/prefix` gets each event on the subject `prefix.TYPE`, acknowledged by the stream that
takes it. The message id tells the stream what it has already: an event that comes again within its window is not stored
twice.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perdure.core.errors import InvalidArgument

if TYPE_CHECKING:
    from nats.aio.client import Client

log = logging.getLogger("perdure.webhooks")

SCHEME = "nats://"
SECONDS = 10.0  #: for a connection and the acknowledgement together
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def check_nats(url: str, *, private: bool) -> str:
    """InvalidArgument unless it is a server and a prefix of subjects, and this server may and can publish there. A
    stream lies inside as a rule, so that has to be allowed."""
    parts = urlsplit(url)
    if not parts.hostname or not _PREFIX.fullmatch(parts.path[1:]):
        limit = "nats://HOST:PORT/PREFIX of subjects"
        raise InvalidArgument(f"url is {shown(url)[:100]!r}", field="url", limit=limit, kind="str")
    if not private:
        raise InvalidArgument(
            "start the server with --webhooks-to-private to publish to NATS", field="url", limit="http, https"
        )
    if importlib.util.find_spec("nats") is None:
        raise InvalidArgument("NATS needs the extra perdure[nats] at the server", field="url", limit="http, https")
    return url


def shown(url: str) -> str:
    """A URL without its user."""
    return re.sub(r"(?<=://)[^@/]*@", "", url) if url.startswith(SCHEME) else url


class NatsSender:
    """Connections to NATS servers, by their URLs."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}

    async def send(self, url: str, type: str, id: str, body: bytes) -> str:
        """Nothing when a stream has stored it, else what went wrong."""
        server, prefix = url.rsplit("/", 1)
        try:
            async with asyncio.timeout(SECONDS):
                client = await self._client(server)
                headers = {"Nats-Msg-Id": id, "Content-Type": "application/cloudevents+json"}
                await client.jetstream().publish(f"{prefix}.{type}", body, timeout=SECONDS, headers=headers)
        except Exception as error:  # noqa: BLE001 - the client's own errors have no root but this
            await self._drop(server)
            return f"{error.__class__.__name__}: {error}".rstrip(": ")
        return ""

    async def _client(self, server: str) -> Client:
        client = self._clients.get(server)
        if client is None or not client.is_connected:
            import nats  # an extra

            async def note(error: Exception) -> None:
                log.info("NATS at %s: %s", shown(server), error)

            client = await nats.connect(server, name="perdure", allow_reconnect=False, error_cb=note, connect_timeout=5)
            self._clients[server] = client
        return client

    async def _drop(self, server: str) -> None:
        """The next message finds out how things are."""
        if (client := self._clients.pop(server, None)) is not None:
            await client.close()

    async def close(self) -> None:
        for server in list(self._clients):
            await self._drop(server)
