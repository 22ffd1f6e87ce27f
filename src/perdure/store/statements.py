"""Named SQL statements from files, and the ordered list of migrations.

A file holds statements of the form

    -- name: lock
    -- One sentence that says what it is for.
    select ...

Both dialects hold the same names (a test compares them). `:rows(n)` in a SQLite statement stands for a list of row
values with n columns: `(?,?),(?,?)`; `expand` writes it out for a number of rows, and the result is cached, because
sqlite3 caches prepared statements by text. A verb that takes two statements holds both, with a semicolon between them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from perdure.core.errors import Conflict

_NAME = re.compile(r"^-- name: (\w+)\n((?:--.*\n)+)", re.MULTILINE)
_ROWS = re.compile(r":rows\((\d+)\)")


@cache
def statements(dialect: str) -> dict[str, str]:
    """Every named statement of a dialect ("sqlite" or "postgres")."""
    found: dict[str, str] = {}
    for file in sorted(files("perdure.store.sql").joinpath(dialect).iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, _comment, sql in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if name in found:
                raise ValueError(f"{dialect}/{file.name}: statement {name} is defined twice")
            found[name] = sql.strip().rstrip(";")
    return found


def migrations(dialect: str) -> list[tuple[str, str]]:
    """(name, SQL) of every migration of a dialect, in order."""
    folder = files("perdure.store.sql").joinpath(dialect, "migrations")
    return sorted((f.name.removesuffix(".sql"), f.read_text(encoding="utf-8")) for f in folder.iterdir())


def check_migrations(dialect: str, applied: set[str], database: str) -> None:
    """Conflict unless `applied` are the migrations that this code knows. Older code must not work on a newer schema
    either: what it does not know of it would not write (field case B147)."""
    known = [name for name, _ in migrations(dialect)]
    if missing := [name for name in known if name not in applied]:
        raise Conflict(f"{database} lacks {', '.join(missing)}; run `perdure migrate`", field="schema")
    if newer := sorted(applied.difference(known)):
        text = f"{database} has {', '.join(newer)}, which this version does not know: a newer one has migrated it"
        raise Conflict(f"{text}; upgrade this one", field="schema")


@cache
def expand(sql: str, rows: int) -> str:
    """`sql` with its `:rows(n)` written out for `rows` rows."""

    def values(match: re.Match[str]) -> str:
        one = "(" + ",".join("?" * int(match[1])) + ")"
        return ",".join([one] * rows)

    return _ROWS.sub(values, sql)
