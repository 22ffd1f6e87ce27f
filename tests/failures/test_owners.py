"""Who looks after queues (OPS-02): the verbs on every store, and the calls over the service and REST."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perdure import Perdure
from perdure.cli.main import cli
from perdure.core.errors import InvalidArgument, NotFound
from perdure.core.owners import QueueOwner
from perdure.store.base import Store
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server  # noqa: F401
from tests.clock import START


async def test_owners_are_kept_replaced_and_forgotten(store: Store) -> None:
    assert await store.queue_owners() == []
    mail = QueueOwner("default", "mail", "mail team", 100, START)
    other = QueueOwner("other", "mail", "they", 1_000_000, START)
    for owner in (other, mail):
        await store.put_queue_owner(owner)
    assert await store.queue_owners() == [mail, other]
    newer = QueueOwner("default", "mail", "we", 7, START + 1)
    await store.put_queue_owner(newer)
    assert await store.queue_owners() == [newer, other]
    assert await store.delete_queue_owner("default", "mail")
    assert not await store.delete_queue_owner("default", "mail")
    assert await store.queue_owners() == [other]


async def test_rest_sets_shows_and_deletes_the_owner_of_a_queue(rest: Rest) -> None:  # noqa: F811
    made = await rest("PUT", "/v1/queues/a%2Fb", {"owner": "mail team", "alert_depth": 5})
    assert (made.status, made.body) == (200, {"queue": "a/b", "owner": "mail team"})
    [shown] = (await rest("GET", "/v1/queues")).body["queues"]
    assert (shown["name"], shown["owner"], shown["alert_depth"], shown["ready"]) == ("a/b", "mail team", 5, 0)
    assert (await rest("DELETE", "/v1/queues/a%2Fb")).body == {"queue": "a/b", "owner": ""}
    assert (await rest("DELETE", "/v1/queues/a%2Fb")).status == 404
    assert (await rest("GET", "/v1/queues")).body == {"queues": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"owner": "", "alert_depth": 5}, "owner"),
        ({"owner": "we", "alert_depth": 0}, "alert_depth"),
        ({"owner": "we", "alert_depth": 1_000_001}, "alert_depth"),
        ({"owner": "x" * 1_000}, "owner"),
    ],
    ids=["nobody", "no depth", "too deep", "too long"],
)
async def test_what_cannot_be_an_owner_is_refused(rest: Rest, body: dict[str, Any], field: str) -> None:  # noqa: F811
    refused = await rest("PUT", "/v1/queues/mail", body)
    assert (refused.status, refused.body["field"]) == (400, field)
    assert (await rest("GET", "/v1/queues")).body == {"queues": []}


def test_the_command_line_sets_and_deletes_owners(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/t.db"

    def run(*args: str) -> str:
        done = CliRunner().invoke(cli, [*args, "--server", store])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert run("queues", "own", "mail", "mail team", "--alert-depth", "5") == "mail team looks after queue mail\n"
    [shown] = json.loads(run("queues", "--json"))["queues"]
    assert (shown["owner"], shown["alert_depth"]) == ("mail team", 5)
    assert "mail team" in run("queues")
    assert run("queues", "disown", "mail") == "nobody looks after queue mail\n"
    with Perdure(store) as app, pytest.raises(NotFound):
        app.delete_queue_owner("mail")


def test_a_client_says_who_looks_after_a_queue(tmp_path: Path) -> None:
    with Perdure(f"sqlite:///{tmp_path}/t.db") as app:
        app.set_queue_owner("mail", "mail team")
        [shown] = app.queues()
        assert (shown.owner, shown.alert_depth) == ("mail team", 10_000)
        with pytest.raises(InvalidArgument):
            app.set_queue_owner("mail", "")
