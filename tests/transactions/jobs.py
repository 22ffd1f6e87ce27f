"""Handlers of the tests of transactions."""

from __future__ import annotations

from perdure import Context, task


@task(name="transactions_double")
def double(ctx: Context, payload: int) -> int:
    return payload * 2
