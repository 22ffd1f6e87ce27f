"""Loads the application that a command names: `app.py`, `jobs.tasks`, or either with `:name` of its Perdure object."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

import typer

from perdure.app import AsyncPerdure, Perdure
from perdure.cli.exits import USAGE

App = Perdure | AsyncPerdure


def load(target: str) -> tuple[ModuleType, App | None]:
    """The module, whose tasks are known from then on, and its Perdure object: the named one, or the only one."""
    where, _, attribute = target.partition(":")
    try:
        module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    except typer.BadParameter:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the application's code raises
        print(f"error: {where} cannot be loaded\n{_own_part(error, folder(target))}", file=sys.stderr)
        raise typer.Exit(USAGE) from None
    if attribute:
        named = getattr(module, attribute, None)
        if not isinstance(named, (Perdure, AsyncPerdure)):
            raise typer.BadParameter(f"{where} has no Perdure object named {attribute!r}")
        return module, named
    found = {id(value): (name, value) for name, value in vars(module).items() if isinstance(value, App)}
    if len(found) > 1:
        names = [name for name, _ in found.values()]
        raise typer.BadParameter(f"{where} has several Perdure objects; name one, as in {where}:{names[0]}")
    return module, next((app for _, app in found.values()), None)


def folder(target: str) -> Path:
    """Where the sources of the application are."""
    where = target.partition(":")[0]
    return Path(where).resolve().parent if where.endswith(".py") else Path.cwd()


def _own_part(error: Exception, sources: Path) -> str:
    """The error, and the last line of the application that led to it; not how the line was reached, nor what libraries
    did then."""
    trace = traceback.TracebackException.from_exception(error)
    own = [frame for frame in trace.stack if _is_own(Path(frame.filename), sources)]
    lines = traceback.StackSummary.from_list(own[-1:]).format()
    return "".join([*lines, *trace.format_exception_only()]).rstrip()


def _is_own(file: Path, sources: Path) -> bool:
    return file.is_relative_to(sources) and not file.is_relative_to(sys.prefix)


def _load_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise typer.BadParameter(f"there is no module {name}") from None
