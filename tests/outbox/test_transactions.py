"""A job that ends in a transaction of the application has its event in it: PostgreSQL only."""

from __future__ import annotations

import asyncpg
import pytest

from perdure.core.ids import lease_token
from perdure.core.model import pack
from perdure.core.outbox import START
from perdure.engine.engine import Engine
from perdure.store.postgres import PostgresStore
from tests.engine.drive import Drive, running


@pytest.mark.parametrize("recorded", [False, True])
async def test_complete_in_a_transaction(postgres_database: str, recorded: bool) -> None:
    """OBS-01: with the commit both hold, the end of the job and its event, and with a rollback neither."""
    store = PostgresStore(postgres_database)
    await store.migrate()
    await store.open()
    connection = await asyncpg.connect(postgres_database)
    try:
        async with running(store) as drive:
            await drive.engine.outbox.record("default", recorded)
            task = await drive.lease_new()
            call = "select perdure.complete_v1($1, $2)", lease_token(task.lease), pack(())
            begun = connection.transaction()
            await begun.start()
            await connection.execute(*call)
            await begun.rollback()
            assert await events(drive.engine) == []
            await connection.execute(*call)
            assert await events(drive.engine) == ["task.succeeded"] * recorded
            await again(drive)
    finally:
        await connection.close()
        await store.close()


async def again(drive: Drive) -> None:
    """And events of the engine come behind it."""
    before = await events(drive.engine)
    await drive.succeed(await drive.lease_new())
    assert len(await events(drive.engine)) == 2 * len(before)


async def events(engine: Engine) -> list[str]:
    return [event.type for event in await engine.outbox.events("default", START, 10, 0)]
