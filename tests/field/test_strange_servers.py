"""Field cases on what stands between us and the tables: settings of roles, limits on connections, poolers, newer
schemas, and SQLite files that go away (B031, B139, B147, B148)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from perdure import AsyncPerdure, Context, task
from perdure.core.errors import Conflict, Unavailable
from perdure.database import migrate, opened
from perdure.engine import outage
from perdure.sdk import client
from tests.conftest import PostgresServer


@task(name="strange_echo")
async def echo(ctx: Context, payload: int) -> int:
    return payload


@pytest.fixture
def role(postgres_server: PostgresServer, postgres_database: str) -> Iterator[str]:
    """A role that owns the test's database."""
    name = f"role_{os.getpid()}_{id(postgres_database)}"
    database = postgres_database.partition("?")[0].rpartition("/")[2]
    postgres_server.run(f"create role {name} login; grant pg_signal_backend, pg_read_all_stats to {name}")
    postgres_server.run(f"alter database {database} owner to {name}")
    yield name
    postgres_server.run(f"drop database {database} with (force)")
    postgres_server.run(f"create database {database}")
    postgres_server.run(f"drop role {name}")


async def open_store(url: str) -> None:
    async with opened(url):
        pass


def as_role(url: str, role: str) -> str:
    return url.replace("postgres@", f"{role}@")


# ------------------------------------------------------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("statement_timeout", "1ms"),
        ("default_transaction_isolation", "serializable"),
        ("idle_session_timeout", "200ms"),
        ("search_path", "pg_catalog"),
        ("plan_cache_mode", "force_custom_plan"),
    ],
)
async def test_settings_of_the_role_are_not_ours(
    postgres_server: PostgresServer, postgres_database: str, role: str, setting: str, value: str
) -> None:
    """Migrations end, batches read what was committed before their locks, those who listen go on listening."""
    postgres_server.run(f"alter role {role} set {setting} = '{value}'")
    url = as_role(postgres_database, role)
    assert await migrate(url)
    async with opened(url) as store, store.batch() as batch:
        session = batch._session  # type: ignore[attr-defined]
        assert await session.connection.fetchval("select current_setting($1)", setting) != value
    async with AsyncPerdure(url) as app, app.worker(slots=5):
        jobs = await app.enqueue_many(echo, range(20))
        assert [await job.result(20) for job in jobs] == list(range(20))
        await asyncio.sleep(0.3)  # longer than a session of this role may idle
        assert await (await app.enqueue(echo, 1)).result(20) == 1


async def test_b031_b148_a_limit_on_connections_is_waited_out(
    postgres_server: PostgresServer, postgres_database: str, role: str
) -> None:
    """While none is left it is an outage: what is enqueued meanwhile waits, and goes on."""
    url = as_role(postgres_database, role)
    await migrate(url)
    async with AsyncPerdure(url) as app, app.worker(slots=5):
        assert await (await app.enqueue(echo, 1)).result(20) == 1
        postgres_server.run(f"alter role {role} connection limit 0")
        postgres_server.run(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'")
        waiting = asyncio.create_task(app.enqueue(echo, 2))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        postgres_server.run(f"alter role {role} connection limit -1")
        assert await (await waiting).result(20) == 2


# -------------------------------------------------------------------------------------------------------------- poolers
class Pooler:
    """Takes connections as PgBouncer does: it refuses most settings or, if it is told to, drops them."""

    def __init__(self, folder: Path, upstream: str, *, drops: bool) -> None:
        self._folder = folder
        self._upstream = f"{upstream}/.s.PGSQL.5432"
        self._drops = drops
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._accept, f"{self._folder}/.s.PGSQL.5432")

    async def end(self) -> None:
        await asyncio.gather(*self._serving)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack("!i", await reader.readexactly(4))
        words = (await reader.readexactly(size - 4))[4:].split(b"\x00")
        given = dict(zip(words[::2], words[1::2], strict=False))
        if self._drops:
            kept = b"".join(b"%s\x00%s\x00" % (name, given[name]) for name in (b"user", b"database"))
            message = struct.pack("!ii", len(kept) + 9, 196_608) + kept + b"\x00"
            up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
            up_writer.write(message)
            await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        else:
            text = b"SFATAL\x00C08P01\x00Munsupported startup parameter: search_path\x00\x00"
            writer.write(b"E" + struct.pack("!i", len(text) + 4) + text)
            writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
    target.close()


@pytest.mark.parametrize("drops", [True, False])
async def test_a_pooler_is_refused_with_the_remedy(
    postgres_server: PostgresServer, postgres_database: str, drops: bool
) -> None:
    """It takes the settings of a batch away, and the connection of those who listen. PgBouncer 1.18 does the same, in
    transaction and in session mode."""
    await migrate(postgres_database)
    folder = Path(tempfile.mkdtemp(prefix="pb"))
    pooler = Pooler(folder, postgres_server.socket, drops=drops)
    listener = await pooler.start()
    try:
        url = f"{postgres_database.partition('?')[0]}?host={folder}"
        for opening in (migrate, open_store):
            with pytest.raises(Conflict, match=r"PgBouncer.*search_path.*URL of PostgreSQL itself"):
                await opening(url)
    finally:
        listener.close()
        await pooler.end()
        shutil.rmtree(folder)


# -------------------------------------------------------------------------------------------------------------- schemas
async def test_b147_older_code_refuses_a_newer_schema(url: str) -> None:
    """Rather than write rows that lack what the newer code has added; what already runs goes on."""
    async with AsyncPerdure(url) as app, app.worker():
        if url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(url.partition(":///")[2])) as file:
                file.execute("insert into schema_migrations (name, applied_at) values ('9999_later', 1)")
                file.commit()
        else:
            connection = await asyncpg.connect(url)
            await connection.execute("insert into perdure.migrations (name) values ('9999_later')")
            await connection.close()
        assert await (await app.enqueue(echo, 1)).result(20) == 1
    with pytest.raises(Conflict, match=r"9999_later.*newer.*upgrade") as caught:
        await open_store(url)
    assert caught.value.field == "schema"


# ---------------------------------------------------------------------------------------------------------------- files
@pytest.fixture
async def moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[AsyncPerdure, Path]]:
    """An application whose file, given by a relative path, is about to go away."""
    monkeypatch.setattr(outage, "PATIENCE", 0.3)
    monkeypatch.setattr(client, "OUTAGE_SECONDS", 0.3)
    monkeypatch.chdir(tmp_path)
    async with AsyncPerdure("sqlite:///jobs.db") as app, app.worker():
        assert await (await app.enqueue(echo, 0)).result(10) == 0
        yield app, tmp_path / "jobs.db"


@pytest.mark.parametrize("how", ["moved", "replaced"])
async def test_b139_nothing_is_accepted_into_a_file_that_is_gone(
    moving: tuple[AsyncPerdure, Path], how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite would write on, and all of it be gone with the process. A file that comes back is used again."""
    app, path = moving
    kept = path.with_name("kept.db")
    path.rename(kept)
    if how == "replaced":
        path.write_bytes(b"")
    with pytest.raises(Unavailable):
        await app.enqueue(echo, 1)
    assert "was moved, removed or replaced while it was in use" in caplog.text
    kept.replace(path)
    assert await (await app.enqueue(echo, 2)).result(10) == 2


async def test_a_handler_may_change_the_working_directory(moving: tuple[AsyncPerdure, Path]) -> None:
    app, _ = moving
    os.chdir("/")
    assert await (await app.enqueue(echo, 1)).result(10) == 1
