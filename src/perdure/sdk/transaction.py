"""Calls of Perdure's SQL functions in a transaction of the application's own, over whatever driver it uses.

A call is a function and its named arguments; each driver only differs in how it writes a parameter and how it is asked
to run a statement. No driver is imported unless a connection of it is given. Nothing here begins, commits or rolls
back: what happens with the transaction is the application's business.

An error of one of the functions, told by its SQLSTATE, is raised as the error that the API would raise. PostgreSQL has
then ended the transaction (or the savepoint around the call), so it cannot be committed by mistake.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from perdure.core.errors import (
    Conflict,
    IdempotencyConflict,
    InvalidArgument,
    LeaseLost,
    PayloadTooLarge,
    PerdureError,
    PermissionDenied,
)
from perdure.core.model import Payloads, Progress, pack

Value = str | int | bytes
Row = tuple[Any, ...]

_TYPES: dict[type, str] = {str: "text", int: "bigint", bytes: "bytea"}
_ERRORS: dict[str, type[PerdureError]] = {
    "PD400": InvalidArgument,
    "PD413": PayloadTooLarge,
    "PD409": IdempotencyConflict,
    "PD410": LeaseLost,
    "42501": PermissionDenied,
    "3F000": Conflict,
    "42883": Conflict,
}
"""SQLSTATE -> error. The last two: this database has no schema of Perdure, or an older one."""


class Call(NamedTuple):
    """A call of a function of the schema: what to select of it, its name, its arguments."""

    columns: str
    function: str
    arguments: Mapping[str, Value]

    def statement(self, parameter: Callable[[int, str], str]) -> str:
        """SQL; `parameter` writes the n-th parameter (from 1) of a name. Types are named, because drivers guess."""
        given = ", ".join(
            f"{name} => cast({parameter(number, name)} as {_TYPES[type(value)]})"
            for number, (name, value) in enumerate(self.arguments.items(), 1)
        )
        return f"select {self.columns} from perdure.{self.function}({given})"


def enqueue_call(arguments: Mapping[str, Value]) -> Call:
    """Answers (task id as text, whether an earlier call with the same key had made it)."""
    return Call("task_id::text, duplicate", "enqueue_v1", arguments)


def complete_call(lease: bytes, result: Payloads, progress: Progress | None, checkpoint: Payloads | None) -> Call:
    """Answers nothing; an error if the lease is lost."""
    arguments: dict[str, Value] = {"lease": lease, "result": pack(result)}
    if progress is not None:
        arguments["progress"] = pack(progress)
    if checkpoint is not None:
        arguments["checkpoint"] = pack(checkpoint)
    return Call("1", "complete_v1", arguments)


def run(connection: object, call: Call) -> Row:
    """The row that `call` answers, on a connection whose methods block. TypeError for any other connection."""
    name, blocking, _ = _driver(connection)
    if blocking is None:
        raise TypeError(f"{name} is for async code: use AsyncPerdure, or an async handler, and await it")
    with _typed_errors():
        return blocking(connection, call)


async def run_async(connection: object, call: Call) -> Row:
    """The same on a connection whose methods are awaited."""
    name, _, awaited = _driver(connection)
    if awaited is None:
        raise TypeError(f"{name} blocks the event loop: use Perdure, or a plain handler, or an async connection")
    with _typed_errors():
        return await awaited(connection, call)


def is_async(connection: object) -> bool:
    """Whether the methods of a connection are awaited. TypeError when no driver here has made it."""
    return _driver(connection)[2] is not None


# ------------------------------------------------------------------------------------------------------------- drivers
def _numbered(number: int, _name: str) -> str:
    return f"${number}"


def _named(_number: int, name: str) -> str:
    return f"%({name})s"


def _colon(_number: int, name: str) -> str:
    return f":{name}"


async def _asyncpg(connection: Any, call: Call) -> Row:
    return tuple(await connection.fetchrow(call.statement(_numbered), *call.arguments.values()))


def _psycopg(connection: Any, call: Call) -> Row:
    from psycopg.rows import tuple_row  # the connection may make rows of another kind

    with connection.cursor(row_factory=tuple_row) as cursor:
        row: Row = cursor.execute(call.statement(_named), call.arguments).fetchone()
    return row


async def _psycopg_async(connection: Any, call: Call) -> Row:
    from psycopg.rows import tuple_row

    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(call.statement(_named), call.arguments)
        row: Row = await cursor.fetchone()
    return row


def _sqlalchemy(connection: Any, call: Call) -> Row:
    return tuple(connection.execute(_clause(call)).one())


async def _sqlalchemy_async(connection: Any, call: Call) -> Row:
    return tuple((await connection.execute(_clause(call))).one())


def _clause(call: Call) -> Any:
    from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, text

    kinds = {str: Text, int: BigInteger, bytes: LargeBinary}
    binds = [bindparam(name, value, type_=kinds[type(value)]()) for name, value in call.arguments.items()]
    return text(call.statement(_colon)).bindparams(*binds)


_Blocking = Callable[[Any, Call], Row]
_Awaited = Callable[[Any, Call], Awaitable[Row]]

_DRIVERS: dict[tuple[str, str], tuple[_Blocking | None, _Awaited | None]] = {
    ("asyncpg", "Connection"): (None, _asyncpg),
    ("asyncpg", "PoolConnectionProxy"): (None, _asyncpg),
    ("psycopg", "Connection"): (_psycopg, None),
    ("psycopg", "AsyncConnection"): (None, _psycopg_async),
    ("sqlalchemy", "Connection"): (_sqlalchemy, None),
    ("sqlalchemy", "Session"): (_sqlalchemy, None),
    ("sqlalchemy", "scoped_session"): (_sqlalchemy, None),
    ("sqlalchemy", "AsyncConnection"): (None, _sqlalchemy_async),
    ("sqlalchemy", "AsyncSession"): (None, _sqlalchemy_async),
    ("sqlalchemy", "async_scoped_session"): (None, _sqlalchemy_async),
}
"""(package, class) -> how to run a call on it, blocking and awaited. Subclasses are found by their bases."""


def _driver(connection: object) -> tuple[str, _Blocking | None, _Awaited | None]:
    kind = type(connection)
    for base in kind.__mro__:
        found = _DRIVERS.get((base.__module__.partition(".")[0], base.__name__))
        if found is not None:
            return (f"{kind.__module__}.{kind.__name__}", *found)
    raise TypeError(
        f"{kind.__module__}.{kind.__name__} is no connection to PostgreSQL that is known here: give an asyncpg or "
        "psycopg 3 connection, or a SQLAlchemy connection or session"
    )


# -------------------------------------------------------------------------------------------------------------- errors
@contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        typed = _typed(error)
        if typed is None:
            raise
        raise typed from error


def _typed(error: Exception) -> PerdureError | None:
    """The error that one of the driver stands for; None for what is not ours."""
    original = getattr(error, "orig", None)  # SQLAlchemy wraps the driver's; asyncpg's in an adapter's of its own
    for fault in (getattr(original, "__cause__", None), original, error):
        kind = _ERRORS.get(getattr(fault, "sqlstate", None) or "")
        if kind is not None:
            break
    else:
        return None
    told = getattr(fault, "diag", fault)
    said = getattr(told, "message_primary", None) or getattr(told, "message", None) or str(fault)
    if kind in (Conflict, PermissionDenied):
        hint = "run `perdure migrate` on this database" if kind is Conflict else "see docs/transactions.md"
        return kind(f"{said}; {hint}")
    return kind(
        said,
        field=getattr(told, "column_name", None) or None,
        limit=getattr(told, "constraint_name", None) or None,
        kind=getattr(told, "datatype_name", None) or getattr(told, "data_type_name", None) or None,
    )
