"""Keys that the SDK mints: unique wherever they are made, in order of time, cheap."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from perdure.sdk.keys import mint_key, mint_keys

FORK = """
import os, sys
from perdure.sdk.keys import mint_key
mint_key()
for _ in range(3):
    if not os.fork():
        os.write(1, "".join(mint_key() + chr(10) for _ in range(100)).encode())
        os._exit(0)
for _ in range(3):
    assert os.wait()[1] == 0
os.write(1, "".join(mint_key() + chr(10) for _ in range(100)).encode())
"""


def test_keys_rise_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the borders of blocks, and whichever way they are made."""
    clock = count(1_800_000_000_000_000_000, 1_000_000)
    monkeypatch.setattr(time, "time_ns", clock.__next__)
    keys = [key for n in range(600) for key in ([mint_key()] if n % 3 else mint_keys(2)[:1])]
    assert keys == sorted(keys)
    assert len(set(keys)) == 600
    assert {len(key) for key in keys} == {32}


def test_randomness_comes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = os.urandom

    def urandom(size: int) -> bytes:
        calls.append(size)
        return real(size)

    monkeypatch.setattr(os, "urandom", urandom)
    for _ in range(1_000):
        mint_key()
    mint_keys(500)
    assert len(calls) <= 4


def test_threads_share_no_key() -> None:
    """IDEM-05."""
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [mint_key() for _ in range(2_000)], range(8)))
    assert len({key for keys in made for key in keys}) == 16_000


def test_forked_processes_share_no_key() -> None:
    """IDEM-05: the block of random bits is not inherited."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    keys = done.stdout.split()
    assert (len(keys), len(set(keys))) == (400, 400)
