"""The SQL functions of migration 0002 as anybody may call them: what they refuse, what they make, who may."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from perdure import Perdure
from perdure.core.ids import slot_of
from perdure.core.model import Payload, Payloads, RetryPolicy, Timeouts, pack, unpack
from perdure.store.postgres import PostgresStore
from perdure.store.statements import migrations

Query = Callable[..., list[tuple[Any, ...]]]
ROOT = Path(__file__).parents[2]
PAYLOAD = pack((Payload({"encoding": "json/plain"}, b"1"),))
ENQUEUE = "select task_id::text, duplicate from perdure.enqueue_v1({})"
JSON = "select task_id::text, duplicate from perdure.enqueue_json_v1('t', '1', %s)"


def enqueue(query: Query, **arguments: Any) -> tuple[str, bool]:
    given = {"namespace": "default", "task_type": "t", "payload": PAYLOAD} | arguments
    sql = ENQUEUE.format(", ".join(f"{name} => %s" for name in given))
    task_id, duplicate = query(sql, *given.values())[0]
    return task_id, duplicate


REFUSED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("PD400", "namespace", "1 to 255 bytes of printable text", {"namespace": ""}),
    ("PD400", "task_type", "1 to 255 bytes of printable text", {"task_type": "é" * 128}),
    ("PD400", "queue", "1 to 255 bytes of printable text", {"queue": "a\tb"}),
    ("PD400", "app", "1 to 255 bytes of printable text", {"app": " a"}),
    ("PD400", "fairness_key", "1 to 255 bytes of printable text", {"fairness_key": "\u200f"}),
    ("PD400", "idempotency_key", "1 to 255 bytes of printable text", {"idempotency_key": ""}),
    ("PD400", "payload", "MessagePack of payloads", {"payload": b""}),
    ("PD413", "payload", "263168 bytes", {"payload": b"x" * 263_169}),
    ("PD413", "headers", "65536 bytes", {"headers": b"x" * 65_537}),
    ("PD413", "digest", "64 bytes", {"digest": b"x" * 65}),
    ("PD400", "priority", "1 to 5", {"priority": 0}),
    ("PD400", "priority", "1 to 5", {"priority": 2**40}),
    ("PD400", "delay", "0 to 316224000000000", {"delay": -1}),
    ("PD400", "run_at", "0 to 4418668800000000", {"run_at": 2**62}),
    ("PD400", "run_at", "one of delay, run_at", {"run_at": 5, "delay": 5}),
    ("PD400", "max_attempts", "1 to 10000", {"max_attempts": 10_001}),
    ("PD400", "lease_length", "1000000 to 316224000000000", {"lease_length": 1}),
    ("PD400", "slot", "0 to 16383", {"slot": 16_384}),
    ("PD400", "identity", "2000 characters", {"identity": "x" * 2_001}),
]


@pytest.mark.parametrize(("state", "field", "limit", "arguments"), REFUSED)
def test_a_refusal_names_field_and_limit(
    query: Query, state: str, field: str, limit: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        enqueue(query, **arguments)
    told = caught.value.diag
    assert (caught.value.sqlstate, told.column_name, told.constraint_name) == (state, field, limit)
    assert query("select count(*) from perdure.tasks") == [(0,)]


@pytest.mark.parametrize("missing", ["namespace", "task_type", "payload", "queue", "app", "priority", "delay"])
def test_null_is_no_value(query: Query, missing: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        enqueue(query, **{missing: None})
    assert (caught.value.sqlstate, caught.value.diag.column_name) == ("PD400", missing)


def test_characters_that_cannot_be_shown_are_those_of_python(query: Query) -> None:
    """One set for both ways, as far as characters are assigned; the bad ones are those that `isprintable` refuses."""
    assigned = [
        chr(code)
        for code in range(1, sys.maxunicode + 1)
        if not 0xD800 <= code <= 0xDFFF and unicodedata.category(chr(code)) != "Cn"
    ]
    query("create function refused(value text) returns boolean language plpgsql as $$"
          " begin perform perdure.check_name('x' || value || 'x', 'f'); return false;"
          " exception when sqlstate 'PD400' then return true; end $$")  # fmt: skip
    query("alter function refused set search_path = perdure, public")
    chunks = ["".join(assigned[at : at + 50]) for at in range(0, len(assigned), 50)]
    which = "select c from unnest(%s::text[]) as c where refused(c)"
    suspects = [c for (chunk,) in query(which, chunks) for c in chunk]
    refused = {c for (c,) in query(which, suspects)}
    assert refused == {c for c in assigned if not c.isprintable()}


def test_ids_sort_in_order_of_the_calls(url: str) -> None:
    """B054: jobs of one transaction have an order; TASK-14: a UUIDv7 with a slot."""
    with psycopg.connect(url) as connection:
        call = ENQUEUE.format("'default', 't', %s, slot => %s")
        made = [connection.execute(call, (PAYLOAD, 77)).fetchone() for _ in range(300)]
        ids = [row[0] for row in made if row is not None]
    assert ids == sorted(ids)
    assert len(set(ids)) == 300
    for task_id in ids:
        data = bytes.fromhex(task_id.replace("-", ""))
        assert data[6] >> 4 == 7
        assert data[8] >> 6 == 2
        assert int.from_bytes(data[8:10], "big") & 0x3FFF == 77


def test_an_order_of_calls_is_an_order_of_starts(app: Perdure, query: Query) -> None:
    """B054: places are given in the order of the calls."""
    ids = [enqueue(query)[0] for _ in range(250)]
    with app.worker(tasks=[], slots=1, queues=["elsewhere"]):
        while query("select count(*) from perdure.tasks where place is null") != [(0,)]:
            threading.Event().wait(0.02)
    assert [row[0] for row in query("select id::text from perdure.tasks order by priority, place, id")] == ids


async def test_a_key_whose_time_is_over_is_free_once_its_task_closed(url: str, query: Query) -> None:
    """IDEM-02."""
    first, _ = enqueue(query, idempotency_key="k", digest=b"a")
    query("update perdure.keys set expires_at = 1")
    assert enqueue(query, idempotency_key="k", digest=b"a") == (first, True)
    query("delete from perdure.tasks")
    second, duplicate = enqueue(query, idempotency_key="k", digest=b"b")
    assert (second != first, duplicate) == (True, False)
    assert enqueue(query, idempotency_key="k", digest=b"b") == (second, True)


def test_two_transactions_with_one_key_make_one_job(url: str, query: Query) -> None:
    """IDEM-01: the second waits for the first, and gets its job if that commits, else makes its own."""
    for commits in (True, False):
        key = f"race {commits}"
        found: list[Any] = []
        with psycopg.connect(url) as first, psycopg.connect(url) as second:
            call = ENQUEUE.format("'default', 't', %s, idempotency_key => %s")
            mine = first.execute(call, (PAYLOAD, key)).fetchone()

            def repeat(
                second: psycopg.Connection[Any] = second, call: str = call, key: str = key, found: list[Any] = found
            ) -> None:
                found.append(second.execute(call, (PAYLOAD, key)).fetchone())

            other = threading.Thread(target=repeat)
            other.start()
            while query("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") != [(1,)]:
                threading.Event().wait(0.005)
            (first.commit if commits else first.rollback)()
            other.join()
            second.commit()
        assert mine is not None
        assert (found[0][0] == mine[0], found[0][1]) == (commits, commits)


# ---------------------------------------------------------------------------------------------------------------- JSON
def test_json_makes_what_the_sdk_makes(app: Perdure, query: Query) -> None:
    """All options; the columns are read back by the types that wrote them."""
    options = {
        "namespace": "shop", "queue": "mail", "app": "web", "delay": "1h30m", "priority": 2, "fairness_key": "c 7",
        "retry": {"max_attempts": 3, "base": 0.5, "cap": 60, "fatal_types": ["A"], "delays": [1, 2.5]},
        "timeouts": {"start_to_close": "PT1H", "lease": 5, "schedule_to_start": "90s", "schedule_to_close": "2d"},
        "headers": {"user": "Ωmega"}, "identity": "me", "idempotency_key": "k", "run_at": None,
    }  # fmt: skip
    text = '{"text": "Ωmega",\n "n": 1.0}'
    made = query("select task_id from perdure.enqueue_json_v1('ship', %s, %s)", text, Jsonb(options))[0][0]
    names = (
        "namespace, queue, app, type, lane, priority, fairness_key, identity, idempotency_key, max_attempts, "
        "lease_length, ready_at - created_at, expires_at - ready_at, deadline - ready_at, "
        "payload, headers, retry_policy, timeouts"
    )
    found = query(f"select {names} from perdure.tasks where id = %s", made)[0]
    assert found[:14] == (
        "shop", "mail", "web", "ship", "shop\x1fmail\x1fw", 2, "c 7", "me", "k", 3,
        5_000_000, 5_400_000_000, 90_000_000, 2 * 86_400_000_000,
    )  # fmt: skip
    payload, headers, retry, timeouts = found[14:]
    assert unpack(payload, Payloads) == (Payload({"encoding": "json/plain"}, text.encode()),)
    assert unpack(headers, dict[str, str]) == {"user": "Ωmega"}
    assert unpack(retry, RetryPolicy) == RetryPolicy(
        max_attempts=3, base=0.5, cap=60, fatal_types=("A",), delays=(1, 2.5)
    )
    assert unpack(timeouts, Timeouts) == Timeouts(
        start_to_close=3600, lease=5, schedule_to_start=90, schedule_to_close=172_800
    )


REFUSED_JSON: list[tuple[str, str, Any]] = [
    ("PD400", "nope", {"nope": 1}),
    ("PD400", "options", []),
    ("PD400", "queue", {"queue": 5}),
    ("PD400", "priority", {"priority": 2.5}),
    ("PD400", "priority", {"priority": 1e300}),
    ("PD400", "delay", {"delay": "5 minutes"}),
    ("PD400", "delay", {"delay": "P1M"}),
    ("PD400", "delay", {"delay": 1e12}),
    ("PD400", "delay", {"delay": "1" * 200}),
    ("PD400", "run_at", {"run_at": "2030-01-01T00:00:00"}),
    ("PD400", "run_at", {"run_at": "2030-13-01T00:00:00Z"}),
    ("PD400", "retry.x", {"retry": {"x": 1}}),
    ("PD400", "retry.max_attempts", {"retry": {"max_attempts": 0}}),
    ("PD400", "retry.cap", {"retry": {"base": 2, "cap": 1}}),
    ("PD400", "retry.fatal_types", {"retry": {"fatal_types": [1]}}),
    ("PD400", "retry.delays", {"retry": {"delays": [0]}}),
    ("PD400", "timeouts.lease", {"timeouts": {"lease": 0.5}}),
    ("PD400", "headers.a", {"headers": {"a": 1}}),
    ("PD413", "headers", {"headers": {"a": "x" * 16_384}}),
]


@pytest.mark.parametrize(("state", "field", "options"), REFUSED_JSON)
def test_json_is_refused_with_its_field(query: Query, state: str, field: str, options: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        query(JSON, Jsonb(options))
    assert (caught.value.sqlstate, caught.value.diag.column_name) == (state, field)
    assert caught.value.diag.constraint_name


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(1.5, 1.5), ("90", 90), ("250ms", 0.25), ("1h30m", 5400), ("42m30s", 2550), ("1w", 604_800), ("PT1H30M", 5400),
     ("P1DT0.5S", 86_400.5), (0, 0)],
)  # fmt: skip
def test_durations_are_read_as_elsewhere(query: Query, written: Any, seconds: float) -> None:
    """B047: in full, or refused."""
    made, _ = query(JSON, Jsonb({"delay": written}))[0]
    assert query("select ready_at - created_at from perdure.tasks where id = %s", made) == [(int(seconds * 1_000_000),)]


def test_the_size_of_a_payload_is_that_of_the_api(query: Query) -> None:
    """TASK-11: 256 KiB with the name of the encoding, and one byte more."""
    call = "select task_id from perdure.enqueue_json_v1('t', %s)"
    query(call, '"' + "x" * (256 * 1024 - 18 - 2) + '"')
    with pytest.raises(psycopg.Error) as caught:
        query(call, '"' + "x" * (256 * 1024 - 18 - 1) + '"')
    assert (caught.value.sqlstate, caught.value.diag.column_name) == ("PD413", "payload")


def test_a_json_key_finds_its_job_and_refuses_another_body(query: Query) -> None:
    """IDEM-15."""
    first = query(JSON, Jsonb({"idempotency_key": "k", "queue": "a"}))[0]
    assert query(JSON, Jsonb({"queue": "a", "idempotency_key": "k"}))[0] == (first[0], True)
    with pytest.raises(psycopg.Error) as caught:
        query(JSON, Jsonb({"idempotency_key": "k", "queue": "b"}))
    assert caught.value.sqlstate == "PD409"


# -------------------------------------------------------------------------------------------------------------- rights
def test_a_role_needs_the_functions_and_no_table(url: str, query: Query, postgres_server: Any) -> None:
    """The grants of docs/transactions.md, and nothing more; a search path of the caller changes nothing."""
    query("create role teller login")
    try:
        page = (ROOT / "docs" / "transactions.md").read_text(encoding="utf-8")
        (grants,) = re.findall(r"```sql\n(grant .*?)```", page, re.DOTALL)
        for grant in grants.strip().split("\n"):
            query(grant.replace("application", "teller"))
        with psycopg.connect(url, user="teller", autocommit=True) as connection:
            connection.execute("set search_path = pg_temp")
            connection.execute("create temporary table keys (key text)")
            connection.execute("create temporary table tasks (id text)")
            connection.execute(JSON, (Jsonb({"idempotency_key": "k"}),))
            for refused in ("select * from perdure.tasks", "select perdure.take_key('a', 'b', 'c', null, '', 0)"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(refused)
        assert query("select count(*) from perdure.tasks") == [(1,)]
    finally:
        query("drop owned by teller")
        query("drop role teller")


def test_everybody_else_may_nothing(url: str, query: Query) -> None:
    query("create role nobody_else login")
    try:
        query("grant usage on schema perdure to nobody_else")
        with psycopg.connect(url, user="nobody_else", autocommit=True) as connection:
            for call in (ENQUEUE.format("'a', 'b', 'c'"), JSON, "select perdure.complete_v1('', '')"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(call, (Jsonb({}),) if "%s" in call else None)
    finally:
        query("drop owned by nobody_else")
        query("drop role nobody_else")


def test_the_slot_of_a_key_is_in_the_id(app: Perdure, url: str) -> None:
    """SHARD-12, IDEM-03: repeats meet where the first one was written."""
    with psycopg.connect(url) as connection:
        job = app.enqueue_in(connection, "t", idempotency_key="order 1")
    assert int(job.id[19:23], 16) & 0x3FFF == slot_of("default", "default", "order 1")


# ---------------------------------------------------------------------------------------------------------- migrations
SCHEMA = """
select 'column', table_name || '.' || column_name,
    concat_ws(' ', data_type, is_nullable, column_default, collation_name)
from information_schema.columns where table_schema = 'perdure'
union all
select 'index', indexname, indexdef from pg_indexes where schemaname = 'perdure'
union all
select 'function', proname || '(' || pg_get_function_identity_arguments(oid) || ')', pg_get_functiondef(oid)
from pg_proc where pronamespace = 'perdure'::regnamespace
union all
select 'rights', relname, coalesce(relacl::text, '') from pg_class where relnamespace = 'perdure'::regnamespace
union all
select 'rights', proname, coalesce(proacl::text, '') from pg_proc where pronamespace = 'perdure'::regnamespace
union all
select 'options', relname, array_to_string(reloptions, ',')
from pg_class where relnamespace = 'perdure'::regnamespace and relkind = 'r'
order by 1, 2, 3
"""


def test_a_migrated_schema_is_a_fresh_one(
    postgres_database: str, postgres_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PERS-21, B147: step by step with rows in it, or all at once: the same tables, indexes, functions and rights."""
    name = postgres_database.split("/")[3].split("?")[0]
    fresh = f"{name}_fresh"
    postgres_server.run(f"create database {fresh}")
    try:
        steps = migrations("postgres")
        for until in range(1, len(steps) + 1):
            known = steps[:until]
            monkeypatch.setattr("perdure.store.postgres.migrations", lambda dialect, known=known: known)
            assert asyncio.run(migrate(postgres_database)) == [known[-1][0]]
            if until == 1:
                postgres_server.run("insert into perdure.api_keys values ('\\x00', 'n', 'l', 1)", name)
        monkeypatch.undo()
        assert asyncio.run(migrate(postgres_server.url(fresh))) == [name for name, _ in steps]
        assert postgres_server.run(SCHEMA, name) == postgres_server.run(SCHEMA, fresh)
        assert postgres_server.run("select count(*) from perdure.api_keys", name) == "1"
    finally:
        postgres_server.run(f"drop database {fresh} with (force)")


async def migrate(url: str) -> list[str]:
    store = PostgresStore(url)
    try:
        return await store.migrate()
    finally:
        await store.close()
