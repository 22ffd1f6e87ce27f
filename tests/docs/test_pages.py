"""Every example that README and docs show is run, and every link within the repository leads somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DATABASE, Block, blocks, run

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)")


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.runs for block in blocks(page))], ids=title)
def test_page_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    needs_database = any(DATABASE in block.text for block in blocks(page) if block.runs)
    run(page, tmp_path, request.getfixturevalue("postgres_database") if needs_database else "")


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [match[1] for match in _LINK.finditer(page.read_text(encoding="utf-8"))]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, missing


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_blocks_name_their_language(page: Path) -> None:
    known = {"python", "sh", "console", "sql", "json", "ini", "mermaid", "text"}
    unknown = {block.language for block in blocks(page)} - known
    assert not unknown, unknown


QUOTES = [(page, block) for page in PAGES for block in blocks(page) if block.source is not None]


@pytest.mark.parametrize(
    ("page", "block"), QUOTES, ids=lambda one: title(one) if isinstance(one, Path) else str(one.line)
)
def test_pieces_of_files_are_what_the_files_say(page: Path, block: Block) -> None:
    assert block.text in (ROOT / str(block.source)).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_python_that_is_only_shown_compiles(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python" and block.source is None:
            compile(block.text, f"{title(page)}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_states_page_is_what_the_table_of_moves_says() -> None:
    """TASK-02, TASK-03: picture and program cannot disagree."""
    script = ROOT / "scripts" / "state_diagram.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
