"""The page runner fails when a page lies: a test of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import blocks, run


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text.replace("'''", "```"), encoding="utf-8")
    return path


def test_blocks_share_a_folder_and_a_shell(tmp_path: Path) -> None:
    text = """
'''python file=greet.py
def greet(): return "hello"
'''
'''python
import greet; open("said", "w").write(greet.greet())
'''
'''sh
word=$(cat said)
'''
'''console
$ echo "$word, world"
hello, ...
'''
'''sh norun
false
'''
"""
    run(page(tmp_path, text), tmp_path)


@pytest.mark.parametrize("text", ["'''sh\nfalse\n'''\n", "'''python\nraise ValueError\n'''\n"])
def test_a_failing_block_fails_the_page(tmp_path: Path, text: str) -> None:
    with pytest.raises(AssertionError, match="exit status 1"):
        run(page(tmp_path, text), tmp_path)


def test_other_output_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="'two' was not printed"):
        run(page(tmp_path, "'''console\n$ echo one\ntwo\n'''\n"), tmp_path)


def test_lines_are_numbered_from_one(tmp_path: Path) -> None:
    assert [block.line for block in blocks(page(tmp_path, "# title\n\n'''text\nx\n'''\n"))] == [3]
