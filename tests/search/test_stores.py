"""What store/search.py promises, held against all three stores; the reference store evaluates the tree of a query."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from perdure.core.query_text import parse
from perdure.core.search import Hit, Search, cursor, place
from perdure.core.states import Kind
from perdure.store.base import Store
from tests.search.asking import ATTRIBUTES, query
from tests.search.filled import fill

QUERIES = 80


async def every_page(store: Store, search: Search, window: int) -> list[bytes]:
    """The ids that all looks find together; each goes on where the one before ended, by a cursor."""
    ids: list[bytes] = []
    last: Hit | None = None
    while True:
        found = await store.search(search, window, last)
        ids += [hit.id for hit in found.hits]
        if found.last is None:
            return ids
        last = place(search, cursor(search, found.last))


@pytest.mark.parametrize("kind", [Kind.JOB, Kind.WORKFLOW], ids=["jobs", "runs"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_all_stores_find_the_same_whatever_is_asked(every_store: dict[str, Store], seed: int, kind: Kind) -> None:
    """VIS-01, VIS-02, VIS-05: random queries over random rows of two namespaces, in every order, page by page."""
    await asyncio.gather(*(fill(store, seed) for store in every_store.values()))
    random = Random(seed)
    some = 0
    for _ in range(QUERIES):
        text, _ = query(random, kind)
        order = random.choice(("", "ORDER BY CloseTime DESC", "ORDER BY CloseTime ASC", _FIRST[kind]))
        asked = parse(f"{text} {order}", kind, ATTRIBUTES)
        search = Search(
            namespace="default", kind=kind, where=asked.where, by_close=asked.by_close, ascending=asked.ascending
        )
        window = random.choice((3, 7, 100))
        found = {name: await every_page(store, search, window) for name, store in every_store.items()}
        assert found["sqlite"] == found["memory"], f"{text} {order}"
        assert found["postgres"] == found["memory"], f"{text} {order}"
        for closed in (False, True):
            ways = search.ways(closed=closed)
            if ways[0].test is not None:
                least, *others = [await store.reach(search, ways, 5, closed=closed) for store in every_store.values()]
                assert all(few <= rows for found_by in others for few, rows in zip(least, found_by, strict=True)), text
                way = {"closed_way" if closed else "open_way": random.choice(ways)}
                search = replace(search, **way)
        assert await every_page(every_store["sqlite"], search, window) == found["memory"]
        some += len(found["memory"]) > 0
    assert some > QUERIES / 5, "hardly any query found anything"


_FIRST = {Kind.JOB: "ORDER BY EnqueueTime ASC", Kind.WORKFLOW: "ORDER BY StartTime ASC"}
