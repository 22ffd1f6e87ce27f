"""`perdure lint`: what can be seen in the source of workflows without running it."""

from __future__ import annotations

import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.ask import Json
from perdure.cli.exits import USAGE
from perdure.cli.show import show_json
from perdure.lint.findings import Finding, findings
from perdure.lint.rules import ADVICE

RULES = f"Rules: {', '.join(ADVICE)}."
"""For --help."""


def lint(
    paths: Annotated[list[Path], typer.Argument(help="Python files, and folders of such.", exists=True)],
    json: Json = False,
) -> None:
    """Find what workflow code must not do: file:line: rule: advice.

    The code is read, and neither imported nor run. It is what @workflow decorates, and one level of functions that it
    calls in the same file. `# perdure: allow RULE` at the end of a line lets that line be. The exit status is 1 when
    there are findings, 2 for a file that is no Python.

    Example: perdure lint app.py
    """
    files = [file for path in paths for file in _files(path)]
    found = [finding for file in files for finding in _look(file)]
    if json:
        show_json({"findings": [finding._asdict() for finding in found]})
    else:
        for finding in found:
            print(finding)
        if not found:
            print("nothing found")
    if found:
        raise typer.Exit(1)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*.py")) if "/." not in f"/{file.relative_to(path)}")
    else:
        yield path


def _look(file: Path) -> list[Finding]:
    try:
        with tokenize.open(file) as source:
            return findings(source.read(), str(file))
    except (SyntaxError, UnicodeDecodeError) as error:
        line = getattr(error, "lineno", None) or 1
        print(f"error: {file}:{line} is no Python: {error}", file=sys.stderr)
        raise typer.Exit(USAGE) from None
