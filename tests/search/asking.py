"""Random queries: the text, and the tree that it must mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from perdure.core import failures, ids, search_keys
from perdure.core.query import (
    And,
    Attribute,
    Column,
    Compare,
    Field,
    Node,
    Not,
    OneOf,
    Or,
    Present,
    Value,
    Within,
    both,
)
from perdure.core.search_fields import FIELDS, Type
from perdure.core.states import Kind, State
from tests.clock import START
from tests.store.rows import task_id

ATTRIBUTES = {
    "tier": Type.KEYWORD,
    "amount": Type.INT,
    "ratio": Type.DOUBLE,
    "vip": Type.BOOL,
    "due": Type.DATETIME,
    "tags": Type.KEYWORD_LIST,
    "note": Type.TEXT,
    "odd name'`": Type.KEYWORD,
}
WORDS = ("gold", "silver", "Gold", "it's", 'a "b"', "50%", "_", "é", "gold fish", "")
NUMBERS = (-5, 0, 1, 2, 10, 2**40)
RATIOS = (-1.5, 0.0, 0.25, 2.0, 1e300)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OPS = ("=", "<", "<=", ">", ">=")

Asked = tuple[str, Node]


def moment(microseconds: int) -> str:
    return (EPOCH + timedelta(microseconds=microseconds)).isoformat()


def query(random: Random, kind: Kind, depth: int = 3) -> Asked:
    """A condition."""
    if depth == 0 or random.random() < 0.3:
        return test(random, kind)
    if random.random() < 0.2:
        text, node = query(random, kind, depth - 1)
        return f"NOT ({text})", node.part if isinstance(node, Not) else Not(node)
    joined, word = random.choice(((And, "AND"), (Or, "or")))
    asked = [query(random, kind, depth - 1) for _ in range(random.randint(2, 3))]
    parts = tuple(part for _, node in asked for part in (node.parts if isinstance(node, joined) else (node,)))
    return f" {word} ".join(f"({text})" for text, _ in asked), joined(parts)


def test(random: Random, kind: Kind) -> Asked:
    """A test of one field."""
    of_kind = [name for name, definition in FIELDS.items() if definition.column(kind)]
    names = [*of_kind, *(ATTRIBUTES if kind == Kind.WORKFLOW else ())]
    name = random.choice(names)
    definition = FIELDS.get(name)
    field: Field = Attribute(name) if definition is None else Column(definition.column(kind))
    type = ATTRIBUTES[name] if definition is None else definition.type
    shown = f"`{name}`" if not name.isidentifier() else name
    if "`" in name:
        shown = "`" + name.replace("`", "``") + "`"
    if random.random() < 0.1:
        return (f"{shown} IS NOT NULL", Present(field)) if random.random() < 0.5 else (
            f"{shown} is null", Not(Present(field)),
        )  # fmt: skip
    return _compared(random, shown, field, type, kind)


def _compared(random: Random, shown: str, field: Field, type: Type, kind: Kind) -> Asked:
    value = _values(random, type, isinstance(field, Attribute), kind)
    way = random.random()
    if type is Type.TEXT:
        words = [Compare(field, "=", b"") for _ in ()]
        text = random.choice(("gold", "Gold fish", "it's"))
        tests = [OneOf(field, search_keys.word(word)) for word in search_keys.words(text)]
        joined = both(*words, *tests)
        assert joined is not None
        return f"{shown} = {_quoted(text)}", joined
    if way < 0.2 and type is not Type.BOOL:
        pairs = [_values(random, type, isinstance(field, Attribute), kind) for _ in range(random.randint(2, 3))]
        return f"{shown} IN ({', '.join(text for text, _ in pairs)})", OneOf(field, tuple(v for _, v in pairs))
    if way < 0.35:
        return f"{shown} != {value[0]}", And((Present(field), Not(Compare(field, "=", value[1]))))
    if way < 0.5 and type in (Type.KEYWORD, Type.KEYWORD_LIST):
        start = random.choice(("go", "G", "", "it'", "é", "email"))
        key = isinstance(field, Attribute)
        low, below = search_keys.prefix(start) if key else (start, _behind(start))
        return f"{shown} starts_with {_quoted(start)}", Within(field, low, below)
    if way < 0.6 and type not in (Type.BOOL, Type.KEYWORD_LIST, Type.ID, Type.STATE, Type.STATUS, Type.GROUP):
        other = _values(random, type, isinstance(field, Attribute), kind)
        node = And((Compare(field, ">=", value[1]), Compare(field, "<=", other[1])))
        return f"{shown} BETWEEN {value[0]} AND {other[0]}", node
    ordered = type not in (Type.BOOL, Type.KEYWORD_LIST, Type.ID, Type.STATE, Type.STATUS, Type.GROUP)
    op = random.choice(OPS if ordered else ("=",))
    return f"{shown} {op} {value[0]}", Compare(field, op, value[1])


def _behind(start: str) -> str | None:
    return start[:-1] + chr(ord(start[-1]) + 1) if start else None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if "'" not in text else '"' + text.replace('"', '""') + '"'


def _values(random: Random, type: Type, key: bool, kind: Kind) -> tuple[str, Value]:
    """A value as a query writes it, and as the tree has it."""
    match type:
        case Type.INT:
            number = random.choice(NUMBERS)
            return str(number), search_keys.number(number) if key else number
        case Type.DOUBLE:
            ratio = random.choice(RATIOS)
            return repr(ratio), search_keys.number(ratio)
        case Type.BOOL:
            truth = random.random() < 0.5
            return str(truth).lower(), search_keys.truth(truth) if key else truth
        case Type.DATETIME:
            at = START + random.randint(-3, 60) * 1_000_000
            return _quoted(moment(at)), search_keys.time(at) if key else at
        case Type.ID:
            id = task_id(random.randint(1, 60))
            return _quoted(ids.text(id)), id
        case Type.STATE:
            state = random.choice(list(State))
            return _quoted(state.name), int(state)
        case Type.STATUS:
            word, state = random.choice(
                (("Completed", State.SUCCEEDED), ("failed", State.FAILED), ("TIMED_OUT", State.TIMED_OUT))
            )
            return _quoted(word), int(state)
        case Type.DURATION:
            seconds = random.randint(0, 30)
            return f"'{seconds}s'", seconds * 1_000_000
        case Type.GROUP:
            group = random.choice((0, 1, -7))
            return _quoted(failures.group_text(group)), group
        case _:
            text = random.choice(WORDS if key else ("email", "order", "mail", "default", "w1", "order-1", ""))
            return _quoted(text), search_keys.text(text) if key else text
