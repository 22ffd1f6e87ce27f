"""Statements about dead letters go by an index, whatever was in the tables when they were planned."""

from __future__ import annotations

import re

import pytest

from perdure.store import postgres_session
from perdure.store.statements import statements

INDEXES = {
    "count_failures": "closed_tasks_failures",
    "delete_closed": "closed_tasks_pkey",
    "failure_groups": "closed_tasks_failures",
    "find_failures": "closed_tasks_failures",
    "mark_failed": "closed_tasks_pkey",
    "mark_retried": "closed_tasks_pkey",
    "old_failures": "closed_tasks_dead",
    "pick_closed": "closed_tasks_pkey",
    "pick_dead": "closed_tasks_dead",
    "pick_open": "tasks_pkey",
    "retried_by": "closed_tasks_pkey",
    "suspects": "tasks_pkey",
    "window_end": "tasks_pkey",
}


@pytest.mark.parametrize("name", sorted(INDEXES))
async def test_statements_go_by_their_index(migrated_database: str, name: str) -> None:
    session = await postgres_session.connect(migrated_database, postgres_session.BATCH_SETTINGS, seconds=60)
    sql = statements("postgres")[name]
    nulls = ", ".join(["null"] * len(set(re.findall(r"\$\d+", sql))))
    await session.connection.execute(f"prepare planned as {sql}")
    plan = "\n".join(line[0] for line in await session.connection.fetch(f"explain execute planned({nulls})"))
    await session.connection.close()
    assert re.search(rf"(using|on) {INDEXES[name]}", plan), plan
    assert "Seq Scan on" not in plan, plan
