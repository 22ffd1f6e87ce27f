"""A field station sends readings, photographs and notes; jobs turn them into reports, thumbnails and digests.

perdure dev examples/field_station/app.py      a server and a worker for these tasks
make demo                                      the same with a worker that gets killed; see demo.py
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import work

from perdure import Context, Perdure, RetryPolicy, task

app = Perdure(os.environ.get("PERDURE_SERVER", "http://127.0.0.1:7400"))

COLUMNS = ("temperature_c", "wind_ms", "rain_mm")


@task(retries=RetryPolicy(max_attempts=5), timeout="1m")
def month_report(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """A month of one station, column by column; an attempt after a crash goes on behind the last finished column."""
    report: Any = ctx.last_checkpoint or {}
    for name in COLUMNS:
        if name not in report:
            values = work.column(payload["file"], name)
            report[name] = work.summarize(values, random.Random(f"{payload['file']} {name}"))
            ctx.checkpoint(report)
    return report


@task(timeout="1m")
def thumbnail(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """A photograph in another width, as a file in the folder `target`."""
    return work.thumbnail(payload["photo"], payload["width"], Path(payload["target"]))


@task(timeout="1m")
def note_digest(ctx: Context, payload: dict[str, Any]) -> dict[str, Any]:
    """Word statistics of a note, and where it repeats itself or another one."""
    return work.digest(payload["note"])
