"""Rules on the shape of the code that a reader can rely on: sizes, names, and the direction of imports.

The layers, each may import those below it in its own column; the two columns meet in app.py alone (database.py is the
right one's end, for commands):

    cli, dashboard, testing
         app
    worker    api
    sdk       observe, engine
    client    store
         core          the left column sees only its shared vocabulary

lint reads the source of applications, and knows nothing of all this.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from perdure.store.statements import statements

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PACKAGE = SRC / "perdure"
MODULES = sorted(PACKAGE.rglob("*.py"))
PROGRAMS = sorted(path for folder in ("scripts", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py"))

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
VAGUE = {"utils", "util", "helpers", "helper", "manager", "managers", "common", "misc"}

SHARED_CORE = {
    "model", "messages", "workflow_messages", "errors", "durations", "limits",
    "event_messages", "run", "events", "event_types", "group_events", "turn_commands", "schedule_messages",
    "figures", "signal_messages", "pages", "history_json", "body", "failure_messages", "doctor_messages",
    "limit_messages", "search_messages", "owners", "compensations",
}  # fmt: skip
"""What clients and workers may know of the rules: the vocabulary, the wire's bodies, the errors, the limits; and what
histories are made of, because they replay them."""

MAY_IMPORT = {
    "core": {"core"},
    "store": {"store", "core"},
    "engine": {"engine", "store", "core"},
    "observe": {"observe", "engine", "store", "core"},
    "api": {"api", "observe", "engine", "store", "core"},
    "client": {"client", "shared"},
    "sdk": {"sdk", "client", "shared"},
    "worker": {"worker", "sdk", "client", "shared"},
    "database": {"api", "engine", "store", "core"},
    "app": {"database", "worker", "sdk", "client", "api", "engine", "store", "core"},
    "lint": {"lint"},
    "cli": {"cli", "dashboard", "lint", "observe", "app", "database", "sdk", "client", "shared"},
    "dashboard": {"dashboard", "app", "sdk", "client", "shared"},
    "testing": {"testing", "app", "worker", "sdk", "client", "api", "engine", "store", "core"},
    "__init__": {"app", "sdk", "shared"},
    "__main__": {"cli"},
}
"""Layer -> layers that it may import. "shared" is the part of core that is in SHARED_CORE."""

REFERENCE = {"perdure.store.memory"}
"""Modules that only tests use, on purpose: the model that the databases are compared with."""

ONE_DIALECT = {
    "backend": "PostgreSQL has backends to tell apart and to end",
    "end_backend": "see backend",
    "outcome": "SQLite's commits have no unknown outcome: the file is in this process",
    "clock": "SQLite has no clock of its own; the process lends it one",
    "set_clock": "see clock",
    "announce": "only PostgreSQL carries messages between servers",
    "settings_not_made": "nothing stands between SQLite and its file that could drop a setting",
    "lock_waiting": "SQLite has one writer, who never waits for a row",
    "insert": "PostgreSQL takes new rows by COPY",
    "append": "see insert",
    "post": "see insert",
    "publish": "see insert",
    "add_chunks": "see insert",
    "close_runs": "SQLite's close holds both forms",
    "history_sizes": "SQLite counts in Python, without a round trip; a window over the rows would sort them",
    "inbox_sizes": "see history_sizes",
    "open_children": "SQLite's children are read without locks in any case",
    "exchange": "SQLite claims and writes in two statements, without a round trip between them",
    "take": "see exchange",
    "take_room": "only SQLite's log lies in a file that this process makes grow",
    "leave_room": "see take_room",
}
"""Statements that one dialect does without, and why."""

IMPURE = {"asyncio", "os", "pathlib", "socket", "sqlite3", "subprocess", "threading", "time"}
"""Modules by which a rule could reach the outside: core imports none of them."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    """perdure.core.model for src/perdure/core/model.py."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name(path): path for path in MODULES}


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, inside functions and for type checking too."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports in full"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in NAMES else str(node.module)


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def breaks_layers(importer: str, imported: str) -> bool:
    allowed = MAY_IMPORT[layer(importer)]
    if layer(imported) == "core" and "core" not in allowed:
        return "shared" not in allowed or imported.split(".")[-1] not in SHARED_CORE
    return layer(imported) not in allowed


def test_layers_point_down_only() -> None:
    wrong = [
        f"{importer} imports {imported}"
        for importer, path in NAMES.items()
        for imported in imports(path)
        if imported.split(".")[0] == "perdure" and breaks_layers(importer, imported)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported", "wrong"),
    [
        ("perdure.core.decide", "perdure.core.model", False),
        ("perdure.core.decide", "perdure.store.base", True),
        ("perdure.sdk.task", "perdure.core.errors", False),
        ("perdure.sdk.task", "perdure.core.decide", True),
        ("perdure.worker.slots", "perdure.engine.engine", True),
        ("perdure.api.service", "perdure.client.base", True),
        ("perdure.app", "perdure.engine.engine", False),
    ],
)
def test_layer_rule_itself(importer: str, imported: str, wrong: bool) -> None:
    assert breaks_layers(importer, imported) is wrong


def test_core_is_pure() -> None:
    wrong = [
        f"{path.name} imports {imported}"
        for path in (PACKAGE / "core").glob("*.py")
        for imported in imports(path)
        if imported in IMPURE
    ]
    assert not wrong, "\n".join(wrong)


def test_files_and_functions_fit_on_a_few_screens() -> None:
    wrong = []
    for path in [*MODULES, *PROGRAMS]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            wrong.append(f"{path.relative_to(ROOT)} has {lines} lines, at most {MAX_FILE_LINES}: split it by noun")
        for node in ast.walk(tree(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines")
    assert not wrong, "\n".join(wrong)


def test_names_say_what_a_module_is() -> None:
    vague = [str(path.relative_to(ROOT)) for path in MODULES if VAGUE & set(path.stem.strip("_").split("_"))]
    assert not vague, vague


def test_no_dead_module() -> None:
    """Every module is imported by another one or is an entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = [project["scripts"], *project["entry-points"].values()]
    alive = {target.split(":")[0] for entry in entries for target in entry.values()}
    alive |= {"perdure", "perdure.__main__", "perdure.testing", "perdure.sdk.tracing"}
    for importer, path in NAMES.items():
        alive.update(found for found in imports(path) if found != importer)
    dead = [module for module, path in NAMES.items() if path.stem != "__init__" and module not in alive | REFERENCE]
    assert not dead, dead


def test_no_error_is_swallowed_in_silence() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*MODULES, *PROGRAMS]
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler) and all(isinstance(line, ast.Pass) for line in node.body)
    ]
    assert not wrong, wrong


def test_both_dialects_hold_the_same_statements() -> None:
    sqlite, postgres = set(statements("sqlite")), set(statements("postgres"))
    assert sqlite, "no statements found"
    assert sqlite ^ postgres == set(ONE_DIALECT)


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_statement_is_used(dialect: str) -> None:
    """The name of each stands as a string or an attribute in the store's code."""
    used: set[str] = set()
    for path in (PACKAGE / "store").rglob("*.py"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                used.add(node.value)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
    assert not set(statements(dialect)) - used


def test_no_path_of_one_machine() -> None:
    """Nothing that ships names a folder of the machine it was written on."""
    folders = re.compile("|".join(rf"(?<![\w.])/{name}/" for name in ("work", "root", "home", "Users", "farm")))
    ours = [*MODULES, *PROGRAMS, *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.*")]
    wrong = [
        str(path.relative_to(ROOT))
        for path in [*ours, ROOT / "Makefile", ROOT / ".ci" / "run"]
        if path.is_file() and folders.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not wrong, wrong
