"""Field case B162: filters that people write cannot burn the server's time, whatever they ask. What the language itself
refuses is in test_language.py."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from perdure.api import search as searches
from perdure.api.server import App, Server
from perdure.core.query import Column, Compare, Node, Or
from perdure.core.query_text import parse
from perdure.core.search import Search
from perdure.core.search_fields import Type
from perdure.core.states import Kind
from perdure.engine.engine import Engine
from perdure.store.base import Store
from perdure.store.sqlite import SqliteStore
from tests.api.calls import Rest, new_rest
from tests.search.filled import fill


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    store = SqliteStore(tmp_path / "jobs.db")
    await store.migrate()
    await store.open()
    engine = Engine(store)
    await engine.start()
    server = Server(App(engine), port=0)
    await server.start()
    async with new_rest(server.url) as client:
        yield client
    await server.stop()
    await engine.stop()
    await store.close()


@pytest.mark.parametrize(
    "query",
    [
        " OR ".join(["Attempt = 1"] * 10_000),
        "Attempt IN (" + ", ".join(["1"] * 10_000) + ")",
        "(" * 10_000,
        "NOT " * 10_000 + "Attempt = 1",
        "Attempt = 1 -- '",
        "Attempt = 1 /* ' */",
        "TaskType = ''''; drop table tasks; --'",
        "x" * 7_000,
        "TaskType = '" + "a" * 7_900,
        "Attempt = " + "9" * 5_000,
        "TaskType = '\x00'",
    ],
    ids=["ors", "list", "open", "nots", "comment", "other comment", "quotes", "name", "quote", "number", "nul"],
)
async def test_what_is_too_much_is_refused_at_once(rest: Rest, query: str) -> None:
    begun = time.monotonic()
    answer = await rest("GET", "/v1/tasks?query=" + _escaped(query[:20_000]))
    assert answer.status in (400, 413, 431), answer.body
    assert time.monotonic() - begun < 10, "a second, on a machine with nothing else to do"


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def test_the_more_a_query_tests_the_fewer_rows_a_look_takes() -> None:
    def largest(where: Node | None) -> int:
        return searches._largest_look(Search(namespace="default", kind=Kind.WORKFLOW, where=where))

    test = Compare(Column("attempt"), "=", 1)
    assert largest(None) == largest(test) == searches.LARGEST_LOOK
    assert largest(Or((test,) * 40)) == searches.LARGEST_LOOK // 10
    assert largest(Or((test,) * 400)) == searches.LEAST_LOOK


async def test_the_longest_queries_are_answered(store: Store) -> None:
    """As many tests as a text may hold, on every store."""
    await fill(store, 3)
    words = Random(1).sample(range(1_000), 240)
    text = " OR ".join(f"tier = 'w{number}'" for number in words) + " OR TaskQueue = 'mail'"
    tree = parse(text, Kind.WORKFLOW, {"tier": Type.KEYWORD}).where
    assert isinstance(tree, Or) and len(tree.parts) == 241
    search = Search(namespace="default", kind=Kind.WORKFLOW, where=tree)
    counted = await searches.count(store, search)
    tasks, next = await searches.page(store, search, 1_000, None)
    assert len(tasks) == counted.count > 0
    assert next is None
