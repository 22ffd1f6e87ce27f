"""What a process loads before it does anything: half a second of imports is half a second of each command."""

from __future__ import annotations

import subprocess
import sys

import pytest

PARTS = ("aiohttp", "asyncpg", "litestar", "uvicorn", "perdure.api.service", "perdure.engine.engine")
"""Of clients, servers and stores."""
WORKER = "perdure.worker.worker"


def loaded(*arguments: str) -> set[str]:
    """The modules that a Python process imports until it ends."""
    done = subprocess.run([sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "arguments", [("-m", "perdure", "--version"), ("-c", "from perdure import Perdure")], ids=["command", "sdk"]
)
def test_nothing_is_loaded_that_is_not_used(arguments: tuple[str, ...]) -> None:
    assert "perdure" in (modules := loaded(*arguments))
    assert not modules & {*PARTS, WORKER}


def test_a_server_loads_no_worker_and_no_http_client() -> None:
    modules = loaded("-c", "import perdure.app, perdure.api.server, perdure.engine.engine")
    assert "perdure.engine.webhooks" in modules
    assert not modules & {"aiohttp", WORKER}


def test_a_worker_loads_no_server() -> None:
    modules = loaded("-c", "import perdure.app, perdure.client.http, perdure.worker.worker")
    assert not modules & set(PARTS) - {"aiohttp"}
