"""Named SQL statements from files, and the ordered list of migrations.

A file holds statements of the form

    -- name: lock
    -- One sentence that says what it is for.
    select ...

Both dialects hold the same names (a test compares them). What several statements share, such as a list of columns, is
written once, under `-- part: open_brief`, and `:part(open_brief)` stands for it in all files of the dialect. `:rows(n)`
in a SQLite statement stands for a list of row values with n columns: `(?,?),(?,?)`; `expand` writes it out for a number
of rows, and the result is cached, because sqlite3 caches prepared statements by text. A verb that takes two statements
holds both, with a semicolon between them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from perdure.core.errors import Conflict

_NAME = re.compile(r"^-- (name|part): (\w+)\n(?:--.*\n)+", re.MULTILINE)
_PART = re.compile(r":part\((\w+)\)")
_ROWS = re.compile(r":rows\((\d+)\)")


@cache
def statements(dialect: str) -> dict[str, str]:
    """Every named statement of a dialect ("sqlite" or "postgres")."""
    found: dict[tuple[str, str], str] = {}
    for file in sorted(files("perdure.store.sql").joinpath(dialect).iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".sql"):
            continue
        texts = _NAME.split(file.read_text(encoding="utf-8"))
        for kind, name, sql in zip(texts[1::3], texts[2::3], texts[3::3], strict=True):
            if (kind, name) in found:
                raise ValueError(f"{dialect}/{file.name}: {kind} {name} is defined twice")
            found[kind, name] = sql.strip().rstrip(";")
    return {
        name: _PART.sub(lambda part: found["part", part[1]], sql)
        for (kind, name), sql in found.items()
        if kind == "name"
    }


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
