"""Payloads and results have the types that handlers are annotated with (B135)."""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections import namedtuple
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NoReturn, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import InvalidArgument, task
from perdure.sdk.converter import PLAIN, Converter
from perdure.sdk.hints import ANY, Hint, of_value


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass
class Circle:
    centre: Point
    radius: Decimal
    tags: set[str] = dataclasses.field(default_factory=set)


class Order(msgspec.Struct):
    id: UUID
    lines: list[Point]
    paid: datetime | None = None


class User(pydantic.BaseModel):
    id: UUID
    born: date
    scores: tuple[int, ...] = ()
    full_name: str = pydantic.Field(alias="fullName")
    boss: User | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    at: datetime


class Movie(TypedDict):
    title: str
    released: date


class Pair(NamedTuple):
    a: int
    b: bytes


@dataclasses.dataclass(eq=False)
class Itself:
    """Equals no other object."""

    x: int


class Foreign:
    """Of no kind that anything here knows."""

    def __repr__(self) -> str:
        return "Foreign()"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
integers = st.integers(-(2**63), 2**63 - 1)
points = st.builds(Point, integers, st.floats(allow_nan=False, allow_infinity=False))
moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3, minutes=-30))]))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
uuids = st.uuids()
users = st.builds(User, id=uuids, born=st.dates(), scores=st.lists(integers).map(tuple), fullName=texts, boss=st.none())
CASES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "dataclass": (Point, points),
    "nested dataclass": (Circle, st.builds(Circle, points, decimals, st.sets(texts))),
    "Struct": (Order, st.builds(Order, uuids, st.lists(points), st.none() | moments)),
    "pydantic": (User, users | st.builds(User, id=uuids, born=st.dates(), fullName=texts, boss=users)),
    "strict pydantic": (Strict, st.builds(Strict, at=moments)),
    "TypedDict": (Movie, st.fixed_dictionaries({"title": texts, "released": st.dates()})),
    "NamedTuple": (Pair, st.builds(Pair, integers, st.binary(max_size=20))),
    "datetime": (datetime, moments | st.datetimes()),
    "date": (date, st.dates()),
    "time": (time, st.times()),
    "timedelta": (timedelta, st.timedeltas()),
    "Decimal": (Decimal, decimals),
    "UUID": (UUID, uuids),
    "bytes": (bytes, st.binary()),
    "bytes within": (dict[str, bytes], st.dictionaries(texts, st.binary(max_size=20))),
    "enum": (Colour, st.sampled_from(Colour)),
    "int enum": (Level, st.sampled_from(Level)),
    "list": (list[Point], st.lists(points, max_size=3)),
    "set": (set[UUID], st.sets(uuids)),
    "frozenset": (frozenset[int], st.frozensets(integers)),
    "tuple": (tuple[int, date], st.tuples(integers, st.dates())),
    "long tuple": (tuple[Colour, ...], st.lists(st.sampled_from(Colour)).map(tuple)),
    "int keys": (dict[int, str], st.dictionaries(integers, texts)),
    "UUID keys": (dict[UUID, Point], st.dictionaries(uuids, points, max_size=3)),
    "list of models": (list[User], st.lists(users, max_size=3)),
    "optional": (Point | None, st.none() | points),
    "optional model": (User | None, st.none() | users),
    "dataclass or dataclass": (Point | Circle, points | st.builds(Circle, points, decimals)),
    "model or int": (User | int, users | integers),
    "list or one": (list[Point] | Point, st.lists(points, max_size=3) | points),
    "date or datetime": (dict[str, date | datetime], st.dictionaries(texts, st.dates() | moments)),
    "unions within": (list[User | Point | UUID], st.lists(users | points | uuids, max_size=3)),
    "annotated": (Annotated[list[Point], "of the route"], st.lists(points, max_size=3)),
    "abstract": (Mapping[str, Sequence[Decimal]], st.dictionaries(texts, st.lists(decimals, max_size=3))),
    "literal": (typing.Literal["a", "b"], st.sampled_from(["a", "b"])),
}


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_b135_what_is_annotated_comes_back_equal_and_of_its_type(name: str, data: st.DataObject) -> None:
    annotation, values = CASES[name]
    hint, value = Hint(annotation), data.draw(values)
    back = PLAIN.from_payloads(PLAIN.to_payloads(value, "payload", hint), "payload", hint)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (Point, Point(float("nan")), "payload.x"),  # type: ignore[arg-type]
        (Point, Point(2**64), "payload.x"),
        (Point, Point("\ud800"), "payload"),  # type: ignore[arg-type]
        (Point, Point(1, "2"), "payload.y"),  # type: ignore[arg-type]
        (Point, {"x": "1"}, "payload.x"),
        (Point, None, "payload"),
        (Point, b"1", "payload"),
        (list[Point], [Point(1), Point(1, float("inf"))], "payload[1].y"),
        (dict[str, list[int]], {"a": (1, 2)}, "payload.a"),
        (list[int], (1, 2), "payload"),
        (set[int], [1, "2"], "payload[1]"),
        (UUID, "no uuid", "payload"),
        (Decimal, Decimal("NaN"), "payload"),
        (float, float("nan"), "payload"),
        (float | None, float("nan"), "payload"),
        (Colour, "green", "payload"),
        (User, {"id": 1}, "payload"),
        (User | int, "text", "payload"),
        (Circle, Circle(Point(1), Decimal(1), ["a"]), "payload.tags"),  # type: ignore[arg-type]
        (Movie, {"title": "t"}, "payload"),
        (Foreign, 1, "payload"),
        (Foreign, Foreign(), "payload"),
        (None, 1, "payload"),
    ],
    ids=repr,
)
def test_b135_what_does_not_fit_is_refused_by_path(annotation: Any, value: Any, path: str) -> None:
    """B128, B130, B135."""
    with pytest.raises(InvalidArgument) as caught:
        PLAIN.to_payloads(value, "payload", Hint(annotation))
    assert (caught.value.field, str(caught.value).startswith(path)) == (path, True), str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value", "arrives"),
    [
        (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
        (Point, {"x": 1, "z": "of a later version"}, Point(1)),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (set[int], [1, 1], {1}),
        (bytes, "aGk=", b"hi"),
        (Decimal, "1.10", Decimal("1.10")),
        (list[Colour], ["red"], [Colour.RED]),
        (dict[str, object], {"a": [1]}, {"a": [1]}),
    ],
    ids=repr,
)
def test_json_that_stands_for_a_value_is_taken_as_one(annotation: Any, value: Any, arrives: Any) -> None:
    """What REST and other languages send."""
    hint = Hint(annotation)
    assert PLAIN.from_payloads(PLAIN.to_payloads(value, "payload", hint), "payload", hint) == arrives
    assert PLAIN.from_payloads(PLAIN.to_payloads(value, "payload"), "payload", hint) == arrives


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"x": "1"}, "payload.x"),
        ({}, "payload"),
        ([], "payload"),
        (None, "payload"),
        (b"", "payload"),
    ],
    ids=repr,
)
def test_a_reader_names_the_path_of_what_does_not_fit(value: Any, path: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        PLAIN.from_payloads(PLAIN.to_payloads(value, "payload"), "payload", Hint(Point))
    assert (caught.value.field, str(caught.value).startswith(f"{path}: ")) == (path, True)


@dataclasses.dataclass
class Picky:
    x: int

    def __post_init__(self) -> None:
        raise LookupError("of the application")


@pytest.mark.parametrize("annotation", [Picky, Foreign, Picky | Foreign, list[Picky] | Picky], ids=str)
@pytest.mark.parametrize("value", [{"x": 1}, None, b"1"], ids=repr)
def test_whatever_the_application_raises_a_value_that_cannot_be_made_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        PLAIN.from_payloads(PLAIN.to_payloads(value, "payload"), "payload", Hint(annotation))
    assert caught.value.field == "payload"


def test_a_model_says_which_field_is_wrong() -> None:
    with pytest.raises(InvalidArgument, match=r"^payload\[0\]: born: .*\(and 1 more\)$"):
        PLAIN.to_payloads([{"id": str(UUID(int=1)), "born": "soon"}], "payload", Hint(list[User]))


def test_objects_that_equal_only_themselves_may_travel() -> None:
    hint = Hint(Itself)
    back = PLAIN.from_payloads(PLAIN.to_payloads(Itself(3), "payload", hint), "payload", hint)
    assert isinstance(back, Itself)
    assert back.x == 3


def test_b132_deep_values_of_a_recursive_type_are_refused() -> None:
    user: Any = None
    for n in range(600):
        user = User(id=UUID(int=n), born=date.min, fullName="", boss=user)
    with pytest.raises(InvalidArgument):
        PLAIN.to_payloads(user, "payload", Hint(User))


# ---------------------------------------------------------------------------------------------------------- annotations
def test_annotations_of_a_handler() -> None:
    @task
    async def annotated(ctx: Any, payload: list[Point]) -> dict[UUID, Colour]: ...  # type: ignore[empty-body]

    @task
    def bare(ctx, payload=None): ...  # type: ignore[no-untyped-def]

    @task
    def loose(*args: Any) -> object: ...

    @task
    def never(ctx: Any, payload: Any) -> NoReturn: ...  # type: ignore[misc]

    assert (annotated.payload.type, annotated.result.type) == (list[Point], dict[UUID, Colour])
    assert bare.payload.says_nothing and bare.result.says_nothing
    assert loose.payload.says_nothing and loose.result.says_nothing
    assert never.payload.says_nothing and never.result.type is type(None)


@task
def forward(ctx: Any, payload: Defined) -> None: ...


@dataclasses.dataclass
class Defined:
    """Below the handler that names it."""

    value: int


def test_an_annotation_may_name_what_comes_later_in_the_module() -> None:
    assert forward.payload.type is Defined


def test_an_annotation_that_names_nothing_is_an_error_that_says_so() -> None:
    @task
    def lost(ctx: Any, payload: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(TypeError, match=r"payload of task 'lost' cannot be read: .*'Missing'.* imported"):
        Converter().prepare(lost.payload)


@dataclasses.dataclass
class Ambiguous:
    id: UUID | str


def test_a_type_that_json_cannot_tell_apart_is_an_error_that_says_so() -> None:
    with pytest.raises(TypeError, match="has no form in JSON"):
        Converter().prepare(Hint(Ambiguous))


def test_the_class_of_a_value_that_nobody_declared() -> None:
    """A task that lives elsewhere is known only by its name; its payload is taken at its own word."""
    assert of_value({"a": 1}) is ANY and of_value((1,)) is ANY and of_value(None) is ANY
    for value in (Point(1), UUID(int=1), datetime.now(UTC), Order(UUID(int=1), []), Colour.RED):
        PLAIN.to_payloads(value, "payload", of_value(value))
    loose = namedtuple("loose", "a")
    with pytest.raises(InvalidArgument):
        PLAIN.to_payloads({"at": datetime.now(UTC)}, "payload", of_value({}))
    PLAIN.to_payloads(loose(1), "payload", of_value(loose(1)))
