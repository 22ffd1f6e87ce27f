"""Single enqueues of PgQueuer with many in flight; run by the Python of the peer. Arguments: URL, enqueues, in flight.

Its own benchmark script enqueues one job after another over one connection; here the calls share a pool of 16, as a
web application would.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
import time

import asyncpg
from common import PAYLOAD
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries

CONNECTIONS = 16


async def main(url: str, enqueues: int, in_flight: int) -> dict[str, object]:
    body = json.dumps(PAYLOAD).encode()
    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        left = iter(range(enqueues))

        async def caller() -> None:
            for _ in left:
                await queries.enqueue("job", body)

        begun = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(in_flight)))
        rate = enqueues / (time.perf_counter() - begun)
    return {"rate": rate, "ver": f"pgqueuer {importlib.metadata.version('pgqueuer')}"}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
