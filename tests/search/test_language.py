"""The language of queries: what texts mean, and what is said about texts that mean nothing."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.core import search_keys
from perdure.core.errors import InvalidArgument
from perdure.core.model import pack, unpack
from perdure.core.query import And, Attribute, Column, Compare, Node, Not, OneOf, Present, passes, possible
from perdure.core.query_text import Query, parse
from perdure.core.search_fields import FIELDS, Type
from perdure.core.states import Kind
from tests.search.asking import ATTRIBUTES, query

RUNS = Kind.WORKFLOW
JOBS = Kind.JOB
kinds = pytest.mark.parametrize("kind", [JOBS, RUNS], ids=["jobs", "runs"])


def refusal(text: str, kind: Kind = RUNS) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as refused:
        parse(text, kind, ATTRIBUTES)
    return refused.value


def test_the_query_of_the_requirement() -> None:
    """VIS-01, VIS-02."""
    text = "WorkflowType = 'order' AND ExecutionStatus = 'Running' AND tier = 'premium' ORDER BY StartTime DESC"
    where = And(
        (
            Compare(Column("type"), "=", "order"),
            OneOf(Column("state"), (1, 2, 3, 4)),
            Compare(Attribute("tier"), "=", search_keys.text("premium")),
        )
    )
    assert parse(text, RUNS, ATTRIBUTES) == Query(where)


@kinds
@given(random=st.randoms(use_true_random=False))
def test_a_text_means_the_tree_that_it_was_made_of(kind: Kind, random: Random) -> None:
    text, node = query(random, kind)
    assert parse(text, kind, ATTRIBUTES).where == node


@kinds
@given(random=st.randoms(use_true_random=False))
def test_a_tree_is_a_value_that_an_action_carries(kind: Kind, random: Random) -> None:
    _, node = query(random, kind)
    assert unpack(pack(node), Node) == node


@kinds
@given(text=st.text(max_size=60) | st.text("ab=<>!()'\"` ,.-;NOTANDORIN1", max_size=60))
@example("a" * 9_000)
@example("(" * 5_000)
@example("NOT " * 300 + "Attempt = 1")
@example("Attempt = 1 AND " * 400 + "Attempt = 1")
@example("Attempt = " + "-" * 900 + "1")
@example("Attempt = 1" + " - 1" * 400)
@example("Attempt" + " = 1" * 400)
@example("Attempt IS" + " NOT" * 400 + " NULL")
@example("Attempt BETWEEN 1 AND " * 100 + "1")
@example("\x00")
def test_whatever_is_written_is_understood_or_refused(kind: Kind, text: str) -> None:
    try:
        parse(text, kind, ATTRIBUTES)
    except InvalidArgument as error:
        assert error.field == "query" and error.limit


@pytest.mark.parametrize(
    ("text", "character", "said"),
    [
        ("WorkflwType = 'order'", 1, "did you mean WorkflowType?"),
        ("NOT (workflowid = 'x')", 6, "did you mean WorkflowId?"),
        ("tir = 'x'", 1, "did you mean tier?"),
        ("customer = 'x'", 1, "must be registered"),
        ("TaskType = 'x'", 1, "is a field of tasks"),
        ("tier = 'a' AND ExecutionStatus = 'Runing'", 34, "did you mean Running?"),
        ("State = 'LEASD'", 9, "did you mean LEASED?"),
        ("amount = 'one'", 10, "is no Int"),
        ("amount = 1.5", 10, "is no Int"),
        ("tier = 1", 8, "is no Keyword"),
        ("vip = 1", 7, "is no Bool"),
        ("due > 'yesterday'", 7, "is no Datetime"),
        ("due > '2026-11-30T09:00:00'", 7, "is no Datetime"),
        ("ExecutionDuration > 10", 21, "is no Duration"),
        ("RunId = 'x'", 9, "is no Id"),
        ("FailureGroup = 'x'", 16, "is no Group"),
        ("tags > 'a'", 1, "does not take >"),
        ("vip IN (true)", 1, "does not take IN"),
        ("State STARTS_WITH 'E'", 1, "does not take STARTS_WITH"),
        ("note = '!'", 8, "no word"),
        ("tier = NULL", 1, "does not ask for NULL"),
        ("tier IS true", 1, "NULL only"),
        ("tier IN ()", 1, "asks for a list"),
        ("tier", 1, "is no condition"),
        ("'order' = WorkflowType", 1, "is not a field"),
        ("amount = amount", 10, "is no Int"),
        ("amount = ", 9, "ends too early"),
        ("(amount = 1", 12, "ends too early"),
        ("amount = 1)", 11, "cannot stand here"),
        ("amount == 1", 9, "cannot stand here"),
        ("amount = 1 amount = 2", 12, "cannot stand here"),
        ("tier = 'open", 13, "not closed"),
        ("ORDER BY tier", 10, "not ordered by"),
        ("ORDER BY CloseTim", 10, "did you mean CloseTime?"),
        ("ORDER BY CloseTime, StartTime", 19, "cannot stand here"),
        ("ORDER BY CloseTime DESC StartTime", 25, "one field"),
        ("ORDER BY", 9, "ends too early"),
        ("tier STARTS_WITH '" + "é" * 112 + "'", 18, "too long"),
        ("NOT " * 21 + "amount = 1", 81, "nested too deeply"),
        ("(" * 21 + "amount = 1" + ")" * 21, 21, "nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, character: int, said: str) -> None:
    refused = refusal(text)
    assert refused.detail.startswith(f"query, character {character}: ")
    assert said in refused.detail
    assert refused.field == "query" and refused.limit and refused.kind


@pytest.mark.parametrize(
    "text",
    [
        "amount = 1; drop table tasks",
        "amount = 1 -- and more",
        "amount = 1 /* and more */",
        "amount = 1 UNION SELECT 1",
        "amount IN (SELECT 1)",
        "amount = (SELECT count(*) FROM tasks)",
        "EXISTS (SELECT 1)",
        "tier = 'a' || 'b'",
        "tier LIKE '%'",
        "tier = upper('a')",
        "CAST(amount AS text) = '1'",
        "amount = 1 + 1",
        "amount = $1",
        "amount = ?",
        "amount = :p1",
        "amount = @x",
        "tasks.namespace = 'other'",
        "namespace = 'other'",
        "t.namespace = 'other' OR 1 = 1",
        "1 = 1",
        "true",
        'pg_sleep(10) = 1',
        "amount BETWEEN SYMMETRIC 2 AND 1",
        "CASE WHEN true THEN 1 END = 1",
        "tier = 'a' COLLATE nocase",
        "amount = 1::text",
        "tier = E'a'",
        "tier = x'00'",
        "`tier`.`name` = 'a'",
        "{amount} = 1",
        "amount = 0x10",
        "tier = $$a$$",
    ],
)  # fmt: skip
def test_nothing_of_sql_beyond_the_language_is_taken(text: str) -> None:
    """SEC: what is not on the list is refused, whatever it would do."""
    assert refusal(text).field == "query"


@pytest.mark.parametrize("value", ["'; drop table tasks; --", "a' OR '1'='1", 'a" OR "1"="1', "%_\\", ":p1 ? $1 @x"])
def test_values_are_never_text_of_a_statement(value: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"
    assert parse(f"tier = {quoted}", RUNS, ATTRIBUTES).where == Compare(Attribute("tier"), "=", search_keys.text(value))


def test_names_of_attributes_may_hold_anything_between_backticks() -> None:
    for name in ("my tag", "a'b", 'a"b', "a-b", "Order By", "é"):
        asked = parse(f"`{name}` IS NOT NULL", RUNS, {name: Type.KEYWORD})
        assert asked.where == Present(Attribute(name))


def test_words_are_found_in_prose_whatever_their_capitals() -> None:
    def found(query: str, prose: str) -> bool:
        return passes(parse(query, RUNS, ATTRIBUTES).where, lambda _field: search_keys.keys(prose))

    for prose, wanted in (("A goldfish", False), ("Fish, and gold!", True), ("GOLD FISH", True), ("gold", False)):
        assert found("note = 'gold Fish'", prose) is wanted, prose
    assert found("note = 'gold'", "gold")


def test_a_field_without_a_value_passes_no_comparison() -> None:
    for text, found in (
        ("tier = 'a'", False),
        ("tier != 'a'", False),
        ("NOT tier = 'a'", True),
        ("tier NOT IN ('a')", True),
        ("tier IS NULL", True),
        ("tier IS NOT NULL", False),
        ("tier < 'z'", False),
    ):
        assert passes(parse(text, RUNS, ATTRIBUTES).where, lambda _field: ()) is found, text


def test_lists_pass_if_one_of_their_values_does() -> None:
    keys = search_keys.keys(["red", "blue"])
    for text, found in (("tags = 'red'", True), ("tags != 'red'", False), ("tags != 'green'", True)):
        assert passes(parse(text, RUNS, ATTRIBUTES).where, lambda _field: keys) is found, text


def test_statuses_are_read_in_every_spelling() -> None:
    """X-07."""
    for word in ("Canceled", "Cancelled", "CANCELLED", "canceled"):
        assert parse(f"ExecutionStatus = '{word}'", RUNS, {}).where == Compare(Column("state"), "=", 12)
    assert parse("ExecutionStatus = 'TIMED_OUT'", RUNS, {}) == parse("ExecutionStatus = 'TimedOut'", RUNS, {})


def test_tables_without_a_row_that_could_pass_are_left_alone() -> None:
    for text, open, closed in (
        ("ExecutionStatus = 'Running'", True, False),
        ("ExecutionStatus != 'Running'", False, True),
        ("NOT ExecutionStatus = 'Failed'", True, True),
        ("State = 'FAILED' OR State = 'LEASED'", True, True),
        ("CloseTime > '2026-01-01' AND tier = 'a'", False, True),
        ("CloseTime IS NULL", True, True),
        ("ErrorType = 'ValueError'", False, True),
        ("tier = 'a'", True, True),
    ):
        where = parse(text, RUNS, ATTRIBUTES).where
        assert (possible(where, closed=False), possible(where, closed=True)) == (open, closed), text


def test_not_twice_is_nothing() -> None:
    assert parse("NOT NOT amount = 1", RUNS, ATTRIBUTES) == parse("amount = 1", RUNS, ATTRIBUTES)
    assert isinstance(parse("NOT amount = 1", RUNS, ATTRIBUTES).where, Not)


def test_jobs_have_no_search_attributes() -> None:
    assert "have no field" in refusal("tier = 'a'", JOBS).detail


def test_every_field_says_what_it_means() -> None:
    for name, definition in FIELDS.items():
        assert definition.meaning and (definition.job or definition.run), name
