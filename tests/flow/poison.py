"""An application with a job that takes its worker along until somebody has cured it, and one that does no harm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perdure import RetryPolicy, task


@task(queue="flow-poison", retries=RetryPolicy(max_attempts=4, delays=(0.05,)))
def flow_poison(ctx: Any, cure: str) -> str:
    if not Path(cure).exists():
        os._exit(1)
    return "well"


@task(queue="flow-poison")
def flow_harmless(ctx: Any, number: int) -> int:
    return number
