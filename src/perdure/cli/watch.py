"""A task's progress on a terminal, while somebody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from perdure.app import AsyncPerdure
from perdure.core.errors import Unavailable
from perdure.core.messages import TaskView

LOOK_SECONDS = 0.5


async def watched(app: AsyncPerdure, id: str, timeout: str | None) -> Any:
    """The result of a task; see AsyncJob.result. Standard error shows how far it is, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return await app.job(id).result(timeout)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        looking = asyncio.create_task(_look(app, id, bar))
        try:
            return await app.job(id).result(timeout)
        finally:
            looking.cancel()


async def _look(app: AsyncPerdure, id: str, bar: Progress) -> None:
    shown = bar.add_task("", total=None)
    while True:
        try:
            view = await app.get(id)
        except Unavailable:
            bar.update(shown, description="the server does not answer", total=None)
        else:
            progress = view.progress
            bar.update(
                shown,
                description=_words(view),
                completed=0 if progress is None else progress.done,
                total=None if progress is None else progress.total,
            )
        await asyncio.sleep(LOOK_SECONDS)


def _words(view: TaskView) -> str:
    """Its state and, before it runs, what it waits for; its own words once it says something."""
    if view.progress is None:
        return f"{view.state}: {view.waiting_for}" if view.waiting_for else view.state
    total = "" if view.progress.total is None else f" of {view.progress.total:g}"
    message = f": {view.progress.message}" if view.progress.message else ""
    return f"{view.state} {view.progress.done:g}{total}{message}"
