"""One face for all drivers that an application may use, so that each test runs on every one of them."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from perdure import AsyncJob, AsyncPerdure, Job, Perdure


class Driver:
    """A connection of an application in a transaction of its own. `connection` is what it gives to Perdure."""

    connection: Any

    def execute(self, sql: str) -> None:
        raise NotImplementedError

    def enqueue(self, app: Perdure, *args: Any, **options: Any) -> Job | AsyncJob:
        """`enqueue_in` as code of this kind calls it."""
        return app.enqueue_in(self.connection, *args, **options)

    def complete(self, ctx: Any, result: object) -> None:
        """`complete_in` as a handler of this kind calls it."""
        ctx.complete_in(self.connection, result)

    def begin(self) -> None:
        """After a commit or a rollback; most drivers do it by themselves."""

    def commit(self) -> None:
        self.execute("commit")

    def rollback(self) -> None:
        self.execute("rollback")

    def close(self) -> None:
        self.connection.close()


class Psycopg(Driver):
    """With rows that are no tuples, as an application may have set."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, row_factory=dict_row)

    def execute(self, sql: str) -> None:
        self.connection.execute(sql)


class Django(Driver):
    """What is inside `django.db.connection`, in a transaction that Django began."""

    def __init__(self, url: str) -> None:
        import django
        from django.conf import settings
        from django.db.backends.postgresql.base import DatabaseWrapper

        if not settings.configured:
            settings.configure()
            django.setup()
        parts = urlsplit(url)
        host = parse_qs(parts.query)["host"][0]
        self._wrapper = DatabaseWrapper(
            {
                "NAME": parts.path[1:], "USER": "postgres", "PASSWORD": "", "HOST": host, "PORT": "", "OPTIONS": {},
                "TIME_ZONE": None, "AUTOCOMMIT": True, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False,
                "ATOMIC_REQUESTS": False, "ENGINE": "",
            }
        )  # fmt: skip
        self._wrapper.set_autocommit(False)
        self.connection = self._wrapper.connection

    def execute(self, sql: str) -> None:
        with self._wrapper.cursor() as cursor:
            cursor.execute(sql)

    def commit(self) -> None:
        self._wrapper.commit()

    def rollback(self) -> None:
        self._wrapper.rollback()

    def close(self) -> None:
        self._wrapper.close()


class SqlalchemyConnection(Driver):
    def __init__(self, url: str) -> None:
        self._engine = sqlalchemy.create_engine(dialect(url, "psycopg"))
        self.connection: Any = self._engine.connect()

    def execute(self, sql: str) -> None:
        self.connection.execute(sqlalchemy.text(sql))

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()
        self._engine.dispose()


class SqlalchemySession(SqlalchemyConnection):
    def __init__(self, url: str) -> None:
        self._engine = sqlalchemy.create_engine(dialect(url, "psycopg"))
        self.connection = Session(self._engine)


class AsyncDriver(Driver):
    """On an event loop of its own."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self.connect(url))

    async def connect(self, url: str) -> None:
        raise NotImplementedError

    def execute(self, sql: str) -> None:
        self.runner.run(self.connection.execute(sql))

    def enqueue(self, app: Perdure, *args: Any, **options: Any) -> Job | AsyncJob:
        async def enqueue() -> AsyncJob:
            async with AsyncPerdure(app.url, namespace=app.namespace) as async_app:
                return await async_app.enqueue_in(self.connection, *args, **options)

        return self.runner.run(enqueue())

    def complete(self, ctx: Any, result: object) -> None:
        async def complete() -> None:
            await ctx.complete_in(self.connection, result)

        self.runner.run(complete())

    def close(self) -> None:
        self.runner.run(self.connection.close())
        self.runner.close()


class Asyncpg(AsyncDriver):
    async def connect(self, url: str) -> None:
        self.connection = await asyncpg.connect(url)
        await self.connection.execute("begin")

    def begin(self) -> None:
        self.execute("begin")


class AsyncpgPool(Asyncpg):
    """What a pool gives out is a proxy of a connection."""

    async def connect(self, url: str) -> None:
        self._pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
        self.connection = await self._pool.acquire()
        await self.connection.execute("begin")

    def close(self) -> None:
        self.runner.run(self._close())
        self.runner.close()

    async def _close(self) -> None:
        await self.connection.close()
        self._pool.terminate()


class PsycopgAsync(AsyncDriver):
    async def connect(self, url: str) -> None:
        self.connection = await psycopg.AsyncConnection.connect(url)


class SqlalchemyAsyncConnection(AsyncDriver):
    async def connect(self, url: str) -> None:
        self._engine = create_async_engine(dialect(url, "asyncpg"))
        self.connection = await self._engine.connect()

    def execute(self, sql: str) -> None:
        self.runner.run(self.connection.execute(sqlalchemy.text(sql)))

    def commit(self) -> None:
        self.runner.run(self.connection.commit())

    def rollback(self) -> None:
        self.runner.run(self.connection.rollback())

    def close(self) -> None:
        self.runner.run(self.connection.close())
        self.runner.run(self._engine.dispose())
        self.runner.close()


class SqlalchemyAsyncSession(SqlalchemyAsyncConnection):
    async def connect(self, url: str) -> None:
        self._engine = create_async_engine(dialect(url, "psycopg"))
        self.connection = AsyncSession(self._engine)


def dialect(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


DRIVERS: dict[str, type[Driver]] = {
    "asyncpg": Asyncpg,
    "asyncpg pool": AsyncpgPool,
    "psycopg": Psycopg,
    "psycopg async": PsycopgAsync,
    "django": Django,
    "sqlalchemy connection": SqlalchemyConnection,
    "sqlalchemy session": SqlalchemySession,
    "sqlalchemy async connection": SqlalchemyAsyncConnection,
    "sqlalchemy async session": SqlalchemyAsyncSession,
}
