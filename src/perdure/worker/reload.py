"""Notices changed source files, for development."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

_LOOK_SECONDS = 0.5
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


async def on_change(folder: Path, changed: Callable[[], None]) -> None:
    """Call `changed` whenever a Python file below `folder` was written, added or removed; until cancelled. Looks at
    times of change twice a second: enough for development, and the same on every platform."""
    before = _times(folder)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = _times(folder)
        if now != before:
            before = now
            changed()


def _times(folder: Path) -> dict[Path, int]:
    """When each Python file was written; without hidden folders, environments and caches."""
    times: dict[Path, int] = {}
    folders = [folder]
    while folders:
        try:
            entries = list(folders.pop().iterdir())
        except OSError:  # removed while being looked at
            continue
        for entry in entries:
            if entry.is_dir():
                if not _is_skipped(entry):
                    folders.append(entry)
            elif entry.suffix == ".py" and entry.exists():
                times[entry] = entry.stat().st_mtime_ns
    return times


def _is_skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").exists()
