"""Runs a Markdown page as its reader would: top to bottom, in one folder and one shell.

What a fenced block says after its language decides:

    ```python             runs as a script
    ```python file=NAME   is saved under that name
    ```sh                 runs in the page's shell, in which background processes go on to the end of the page
    ```console            the same for each line after a "$ "; the other lines are what it prints, where "..." stands
                          for anything
    ```python from=PATH   only shown: a piece of that file of the repository, letter by letter
    ```LANGUAGE norun     only shown: what needs a clone, a registry or a server that the test does not have

Every command must succeed. Port 7400, which the pages name or mean, may be in use: a page gets one of its own.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>\S[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "--- block "
DEFAULT_PORT = "7400"
DATABASE = "postgresql://localhost/shop"
"""The database of pages that need PostgreSQL: such a page gets one of its own."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, its text and the line it starts on."""

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def file(self) -> str | None:
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)

    @property
    def source(self) -> str | None:
        """The file, from the root of the repository, that it is a piece of."""
        return next((word.removeprefix("from=") for word in self.words if word.startswith("from=")), None)

    @property
    def runs(self) -> bool:
        return self.language in ("python", "sh", "console") and "norun" not in self.words and self.source is None

    def commands(self, folder: Path) -> str:
        """The block as lines of a shell script."""
        if self.language == "console":
            return "\n".join(line[2:] for line in self.text.splitlines() if line.startswith("$ ")) + "\n"
        if self.language == "sh":
            return self.text
        (folder / f"line_{self.line}.py").write_text(self.text, encoding="utf-8")
        return f"python line_{self.line}.py\n"

    def expected(self) -> list[str]:
        """The lines that a console block says are printed."""
        return [line for line in self.text.splitlines() if not line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(source):
        language, *words = match["info"].split()
        found.append(Block(language, tuple(words), match["text"], source[: match.start()].count("\n") + 1))
    return found


def run(page: Path, folder: Path, database: str = "") -> None:
    """Run the page in an empty folder, with this database where it names one; AssertionError with the output when a
    command fails or prints something else."""
    port = str(_free_port())
    script = ["set -eu"]
    todo = [block for block in blocks(page) if block.runs]
    for block in todo:
        if block.file is not None:
            text = block.text.replace(DEFAULT_PORT, port).replace(DATABASE, database)
            (folder / block.file).write_text(text, encoding="utf-8")
        else:
            commands = block.commands(folder).replace(DEFAULT_PORT, port).replace(DATABASE, database)
            script.append(f"printf '\\n{_MARK}{block.line}\\n'")
            script.append(commands.replace("perdure server", f"perdure server --port {port}"))
    output = _shell("\n".join(script), folder, port)
    parts = dict(part.split("\n", 1) for part in output.split(_MARK)[1:])
    for block in todo:
        if block.language == "console":
            _compare(block, parts[str(block.line)])


def _shell(script: str, folder: Path, port: str) -> str:
    """Run a script in a session of its own, and end all that it left running."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "PERDURE_SERVER": f"http://127.0.0.1:{port}",
        "NO_COLOR": "1",
        "COLUMNS": "120",
    }
    log = folder / "page.log"
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait(timeout=100)
        finally:
            with suppress(ProcessLookupError):  # it left nothing running
                os.killpg(shell.pid, signal.SIGKILL)
    output = log.read_text(encoding="utf-8", errors="replace")
    assert status == 0, f"exit status {status}\n{output}"
    return output


def _compare(block: Block, output: str) -> None:
    """Each expected line is printed, in that order; other lines may stand between them."""
    lines = iter(output.splitlines())
    for line in block.expected():
        pattern = re.sub(r"[\[\]*?]", "?", line).replace("...", "*")
        assert any(fnmatchcase(printed.strip(), pattern.strip()) for printed in lines), (
            f"line {block.line}: {line!r} was not printed\n{output}"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
