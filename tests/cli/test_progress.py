"""`perdure tasks wait` on a terminal shows how far the task is; elsewhere it says nothing but the result."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from perdure import Perdure
from perdure.cli.watch import _words
from perdure.core.messages import TaskView
from perdure.core.model import Progress
from perdure.sdk.task import task as make_task
from tests.worker.processes import COMMAND, PATIENCE, running_server


def ending(ctx: object, payload: str) -> str:
    """Reports progress, then waits until the file of this name is there."""
    ctx.progress(3, 9, "boxes")  # type: ignore[attr-defined]
    while not Path(payload).exists():
        ctx.checkpoint(1)  # type: ignore[attr-defined]
    return "done"


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(tmp_path: Path, terminal: bool) -> None:
    task = make_task(name=f"ending-{terminal}")(ending)
    with running_server("sqlite:///jobs.db", tmp_path) as url, Perdure(url) as app, app.worker():
        job = app.enqueue(task, str(tmp_path / "go"))
        ours, theirs = pty.openpty() if terminal else os.pipe()
        command = [*COMMAND, "tasks", "wait", job.id, "--server", url]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        error = ours if not terminal else theirs
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as waiting:
            os.close(theirs)
            seen = b""
            if terminal:
                while b"LEASED 3 of 9: boxes" not in seen:
                    seen += os.read(ours, 4096)
            (tmp_path / "go").touch()
            assert waiting.stdout is not None
            assert waiting.stdout.read() == b'"done"\n'
            assert waiting.wait(PATIENCE) == 0
        if not terminal:
            assert os.read(error, 4096) == b""
        os.close(ours)


def test_words_say_what_it_waits_for_until_it_says_something() -> None:
    moment = "2026-03-01T12:00:00Z"
    view = TaskView("id", "d", "d", "t", "q", "ENQUEUED", "QUEUED", 3, 0, 5, moment, moment)  # type: ignore[arg-type]
    view.waiting_for = "a free worker on queue 'q'"
    assert _words(view) == "ENQUEUED: a free worker on queue 'q'"
    view.state, view.waiting_for = "SUCCEEDED", ""
    assert _words(view) == "SUCCEEDED"
    view.progress = Progress(4)
    assert _words(view) == "SUCCEEDED 4"
