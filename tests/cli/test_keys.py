"""`perdure keys`: a key is shown once, named by the start of its hash, and revoked for good."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.cli.keys import START
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.errors import Unauthenticated
from perdure.database import make_api_key
from tests.worker.processes import perdure, running_server

STORE = "sqlite:///jobs.db"


def keys(folder: Path, *arguments: str) -> str:
    done = perdure("keys", *arguments, "--store", STORE, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_keys_are_made_and_listed_with_their_labels(tmp_path: Path) -> None:
    key = keys(tmp_path, "create", "--namespace", "shop", "--label", "order service")
    assert key.startswith("pdk_")
    other = json.loads(keys(tmp_path, "create", "--json"))
    assert (other["namespace"], other["label"]) == ("default", "")
    listed = keys(tmp_path, "list")
    assert key not in listed
    assert "shop" in listed.splitlines()[0] and "order service" in listed.splitlines()[0]
    found = json.loads(keys(tmp_path, "list", "--json"))
    assert [(item["namespace"], item["label"]) for item in found] == [("shop", "order service"), ("default", "")]
    assert found[0]["hash"] == listed.split()[0]
    assert len(found[0]["hash"]) == START


def test_a_key_is_revoked_by_the_start_of_its_hash(tmp_path: Path) -> None:
    for label in ("a", "b"):
        keys(tmp_path, "create", "--label", label)
    first, second = json.loads(keys(tmp_path, "list", "--json"))
    assert keys(tmp_path, "revoke", first["hash"]) == f"revoked {first['hash']} of namespace default, {first['label']}"
    assert perdure("keys", "revoke", first["hash"], "--store", STORE, folder=tmp_path).returncode == 3
    for nothing in ("", "zz", "%"):
        assert perdure("keys", "revoke", nothing, "--store", STORE, folder=tmp_path).returncode == 3
    last = perdure("keys", "revoke", second["hash"][:6], "--json", "--store", STORE, folder=tmp_path)
    assert json.loads(last.stdout)["left"] == 0
    assert last.stderr.startswith("no API key is left: ")


async def test_a_start_that_several_keys_have_revokes_none(tmp_path: Path) -> None:
    for _ in range(17):
        await make_api_key(f"sqlite:///{tmp_path / 'jobs.db'}", "default", "")
    starts = [item["hash"][0] for item in json.loads(keys(tmp_path, "list", "--json"))]
    twice = next(start for start in starts if starts.count(start) > 1)
    assert perdure("keys", "revoke", twice, "--store", STORE, folder=tmp_path).returncode == 8
    assert len(json.loads(keys(tmp_path, "list", "--json"))) == 17


@pytest.mark.parametrize(
    ("option", "value"), [("--namespace", " "), ("--namespace", "x" * 256), ("--label", "x" * 2_001)]
)
def test_bad_names_make_no_key(tmp_path: Path, option: str, value: str) -> None:
    assert perdure("keys", "create", option, value, "--store", STORE, folder=tmp_path).returncode == 8
    assert list(tmp_path.iterdir()) == []


async def test_revoking_the_last_key_of_a_running_server_opens_nothing(tmp_path: Path) -> None:
    """SEC-02: who held the key is out within seconds, its open connection too; and nobody comes in without one."""
    key = keys(tmp_path, "create")
    with running_server(STORE, tmp_path) as url:
        holder = HttpService(url, api_key=key)
        assert (await holder.find(m.Find())).tasks == []
        [item] = json.loads(keys(tmp_path, "list", "--json"))
        keys(tmp_path, "revoke", item["hash"])
        async with asyncio.timeout(20):
            with pytest.raises(Unauthenticated):
                while True:
                    await holder.find(m.Find())
        for stranger in (HttpService(url), HttpService(url, api_key=key), HttpService(url, transport="http")):
            with pytest.raises(Unauthenticated):
                await stranger.find(m.Find())
            await stranger.close()
        await holder.close()
