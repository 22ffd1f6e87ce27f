"""The database behind a URL: opened, brought up to date, run by an engine; and its API keys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypedDict, Unpack

from perdure.api.keys import hash_key, new_key
from perdure.core import limits
from perdure.core.errors import InvalidArgument, NotFound, Unavailable
from perdure.core.history_size import MAX_EVENTS, check_max_events
from perdure.store.base import ApiKey as ApiKey
from perdure.store.base import Store, StoreFault

if TYPE_CHECKING:
    from perdure.engine.engine import Engine

LEAST_RETENTION_SECONDS = 86_400.0
"""No task is deleted before the idempotency key that names it."""
_CLOSE_SECONDS = 5.0
"""How long a store may take to let go of its connections."""


def open_store(url: str) -> Store:
    """The store that a URL names, not connected yet. Drivers are loaded only where they are used."""
    scheme, _, rest = url.partition(":///")
    if scheme == "sqlite" and rest:
        from perdure.store.sqlite import SqliteStore

        return SqliteStore(rest)
    if url.startswith(("postgresql://", "postgres://")):
        from perdure.store.postgres import PostgresStore

        return PostgresStore(url)
    raise InvalidArgument(
        f"no store has the URL {url.partition('@')[2] or url!r}", field="url", limit="sqlite:///FILE, postgresql://..."
    )


class EngineOptions(TypedDict, total=False):
    """retention           seconds that closed tasks are kept, 30 days by default
    max_history_events  of a workflow run, 50,000 by default; then its code has to continue as new
    webhooks_to_private webhooks may lead to private and local addresses; False by default
    """

    retention: float
    max_history_events: int
    webhooks_to_private: bool


@asynccontextmanager
async def running_engine(url: str, **options: Unpack[EngineOptions]) -> AsyncIterator[Engine]:
    """An engine over a store."""
    from perdure.engine.engine import Engine  # who migrates, or names a store that others run, needs none

    check_max_events(options.get("max_history_events", MAX_EVENTS))
    async with opened(url) as store:
        engine = Engine(store, **options)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """A store, connected. A SQLite file is made and brought up to date; a PostgreSQL database needs `perdure migrate`,
    because other servers may be using it."""
    store = open_store(url)
    try:
        try:
            if url.startswith("sqlite:"):
                await store.migrate()
            await store.open()
        except StoreFault as fault:
            raise Unavailable(f"the store cannot be opened: {fault}") from fault
        yield store
    finally:
        with contextlib.suppress(TimeoutError):  # a database that does not answer is left alone
            async with asyncio.timeout(_CLOSE_SECONDS):
                await store.close()


async def migrate(url: str) -> list[str]:
    """Bring the schema of a store up to date; the names of the migrations that were applied."""
    store = open_store(url)
    try:
        return await store.migrate()
    except StoreFault as fault:
        raise Unavailable(f"the store cannot be migrated: {fault}") from fault
    finally:
        await store.close()


async def make_api_key(url: str, namespace: str, label: str) -> str:
    """A new API key for a namespace. It is shown this once: only its hash is stored."""
    limits.name(namespace, "namespace")
    limits.text(label, "label")
    key = new_key()
    async with opened(url) as store:
        await store.add_api_key(hash_key(key), namespace, label)
    return key


async def api_keys(url: str) -> list[ApiKey]:
    """The API keys of a store, oldest first."""
    async with opened(url) as store:
        return await store.list_api_keys()


async def revoke_api_key(url: str, start: str) -> ApiKey:
    """Remove the API key whose hash begins so (hexadecimal); running servers know within a second. NotFound when there
    is none, InvalidArgument when there are several."""
    async with opened(url) as store:
        found = [key for key in await store.list_api_keys() if start and key.hash.hex().startswith(start.lower())]
        if len(found) > 1:
            raise InvalidArgument(f"{len(found)} API keys begin with {start!r}", field="key", limit="one key")
        if not found or not await store.remove_api_key(found[0].hash):
            raise NotFound(f"there is no API key that begins with {start[:64]!r}", field="key")
        return found[0]
