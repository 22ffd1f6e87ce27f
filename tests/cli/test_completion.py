"""Shell completion, as a shell asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.processes import PATIENCE

PERDURE = Path(sys.executable).parent / "perdure"


def completed(words: str) -> list[str]:
    """What bash would offer for the last of these words: the script that --show-completion prints is sourced, and its
    function asked."""
    count = len(words.split(" ")) - 1
    script = f"""
        source <(_PERDURE_COMPLETE=source_bash {PERDURE})
        COMP_WORDS=({words!r}) COMP_WORDS=({words} "") COMP_CWORD={count}
        _perdure_completion {PERDURE}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True, env={**os.environ}
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("perdure qu", ["queues"]),
        ("perdure tasks e", ["enqueue"]),
        ("perdure tasks wait --t", ["--timeout"]),
        ("perdure tasks list --state SU", ["SUCCEEDED"]),
        ("perdure keys ", ["create", "list", "revoke"]),
    ],
)
def test_bash_offers_what_may_follow(words: str, offered: list[str]) -> None:
    assert completed(words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str) -> None:
    environment = {**os.environ, "_PERDURE_COMPLETE": f"source_{shell}"}
    done = subprocess.run([PERDURE], capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment)
    assert "_PERDURE_COMPLETE" in done.stdout
