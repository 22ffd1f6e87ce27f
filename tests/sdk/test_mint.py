"""Ids that the SDK mints: unique wherever they are made, in order, cheap."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat

import pytest

from perdure.sdk import mint
from perdure.sdk.mint import mint_id, mint_ids

FORK = """
import os, sys
from perdure.sdk.mint import mint_id
mint_id()
for _ in range(3):
    if not os.fork():
        os.write(1, "".join(mint_id().hex() + chr(10) for _ in range(100)).encode())
        os._exit(0)
for _ in range(3):
    assert os.wait()[1] == 0
os.write(1, "".join(mint_id().hex() + chr(10) for _ in range(100)).encode())
"""


def test_ids_rise_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """B054: within a millisecond, over the borders of blocks, when the counter runs over, when the clock is set back,
    and whichever way they are made."""
    clock = chain(repeat(1_800_000_000_000_000_000, 300), repeat(1_799_000_000_000_000_000, 400))
    monkeypatch.setattr(time, "time_ns", clock.__next__)
    monkeypatch.setattr(mint, "_sequence", mint._Sequence())
    ids = [made for n in range(600) for made in ([mint_id()] if n % 3 else mint_ids(50))]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids) > 2 * 4096


def test_they_are_version_7_uuids() -> None:
    """RFC 9562: the time of the call, version and variant."""
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(bytes=made) for made in (*mint_ids(3), mint_id())]
    assert {(made.version, made.variant) for made in ids} == {(7, uuid.RFC_4122)}
    assert all(before <= made.int >> 80 <= before + 10_000 for made in ids)


def test_randomness_comes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = os.urandom

    def urandom(size: int) -> bytes:
        calls.append(size)
        return real(size)

    monkeypatch.setattr(os, "urandom", urandom)
    for _ in range(1_000):
        mint_id()
    mint_ids(500)
    assert len(calls) <= 4


def test_threads_share_no_key() -> None:
    """IDEM-05."""
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [mint_id() for _ in range(2_000)], range(8)))
    assert len({key for keys in made for key in keys}) == 16_000


def test_forked_processes_share_no_key() -> None:
    """IDEM-05: the block of random bits is not inherited."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    keys = done.stdout.split()
    assert (len(keys), len(set(keys))) == (400, 400)
