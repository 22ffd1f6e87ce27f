"""Statements are named, said in a sentence, found once, and written out for a number of rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

import pytest

from perdure.store.sqlite_file import split
from perdure.store.statements import expand, migrations, statements

SQLITE = sorted(statements("sqlite"))
SORTED = {"running", "trim_events", "webhooks", "sessions", "list_api_keys", "leased_in_lanes", "later_in_lanes"}
"""Statements that sort or group for people: few rows, or as many as the caller's bound."""
TABLES = "tasks|closed_tasks|payloads|attempts|keys|history|inbox"


def test_expand_writes_rows_out_and_keeps_the_text() -> None:
    sql = "insert into t values :rows(2) returning 1"
    assert expand(sql, 1) == "insert into t values (?,?) returning 1"
    assert expand(sql, 3) == "insert into t values (?,?),(?,?),(?,?) returning 1"
    assert expand(sql, 3) is expand(sql, 3), "sqlite3 finds prepared statements by text; the same object hashes once"


def test_statements_have_no_comment_and_no_end_left() -> None:
    for name, sql in statements("sqlite").items():
        assert sql and "--" not in sql and not sql.endswith(";"), name


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_parts_are_written_into_the_statements_that_name_them(dialect: str) -> None:
    texts = [file.read_text() for file in (files("perdure.store.sql") / dialect).iterdir() if file.is_file()]
    parts = {name for text in texts for name in re.findall(r"^-- part: (\w+)$", text, re.MULTILINE)}
    assert parts == {name for text in texts for name in re.findall(r":part\((\w+)\)", text)}
    for name, sql in statements(dialect).items():
        assert ":part(" not in sql and name not in parts, name


def test_the_first_migration_comes_first() -> None:
    names = [name for name, _ in migrations("sqlite")]
    assert names == sorted(names)
    assert names[0] == "0001_initial"


def test_split_ends_no_statement_inside_a_literal_or_a_comment() -> None:
    script = "create table a (b text default ';'); -- one; two\ncreate table c (d);\n"
    assert [re.sub(r"--.*\n", "", part).strip() for part in split(script)] == [
        "create table a (b text default ';');",
        "create table c (d);",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "lock",
        "trace",
        "due",
        "find",
        "find_runs",
        "children",
        "beat",
        "succeed",
        "advance",
        "take",
        "lease",
        "change",
        "close",
    ],
)
def test_payloads_are_left_alone_by_statements_that_do_not_deliver_them(name: str) -> None:
    assert "payloads" not in statements("sqlite")[name]


@pytest.fixture(scope="module")
def schema() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for name, script in migrations("sqlite"):
        assert name
        connection.executescript(script)
    connection.executescript(statements("sqlite")["prepare_migrations"])
    connection.execute(statements("sqlite")["take_room"].partition(";")[0])
    yield connection
    connection.close()


@pytest.mark.parametrize("name", SQLITE)
def test_every_statement_goes_by_an_index(schema: sqlite3.Connection, name: str) -> None:
    """B-tree look-ups only: a scan of a table that grows would make the hot path slower with every task."""
    for part in statements("sqlite")[name].split(";"):
        sql = expand(part, 3)
        names = set(re.findall(r":(\w+)", sql))
        numbered = max(map(int, re.findall(r"\?(\d+)", sql)), default=0)
        values: object = dict.fromkeys(names) if names else (None,) * (numbered + len(re.findall(r"\?(?!\d)", sql)))
        plan = [row[3] for row in schema.execute(f"explain query plan {sql}", values)]  # type: ignore[arg-type]
        scans = [step for step in plan if re.match(rf"SCAN ({TABLES})\b", step)]
        assert not scans, plan
        sorts = [step for step in plan if "TEMP B-TREE" in step and name not in SORTED]
        assert not sorts, plan
