"""Export of an account: an activity that takes long, shows its progress, goes on behind its last checkpoint after a
crash, and can be cancelled; then what it has written is removed."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from outside import effect

from perdure import ActivityError, Cancelled, Context, Perdure, TaskCanceled, WorkflowContext, task, workflow


@dataclass
class Account:
    """The id is that of the workflow."""

    id: str
    parts: int = 200
    seconds_per_part: float = 1.0


@workflow
def export_account(ctx: WorkflowContext, account: Account) -> str:
    writing = ctx.start_activity(write_parts, account)
    try:
        parts = writing.result()
    except Cancelled:  # the activity has been asked to end by now, and may take a moment
        with ctx.shielded():
            with suppress(ActivityError):
                writing.result()
            ctx.step("remove", remove, account.id)
        raise
    return ctx.step("publish", publish, account.id, parts)


@task(heartbeat_timeout="30s", retries=10)
async def write_parts(ctx: Context, account: Account) -> int:
    """`checkpoint` raises Cancelled once the workflow is cancelled."""
    for part in range(ctx.last_checkpoint or 0, account.parts):
        await asyncio.sleep(account.seconds_per_part)  # the work
        effect(account.id, "write_parts", f"part {part + 1}")
        ctx.checkpoint(part + 1)
        ctx.progress(part + 1, account.parts, f"part {part + 1} is written")
    return account.parts


def publish(account_id: str, parts: int) -> str:
    effect(account_id, "publish", f"{parts} parts")
    return f"https://example.org/exports/{account_id}.zip"


def remove(account_id: str) -> None:
    effect(account_id, "remove", "all parts")


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        account = Account("export-1", parts=15, seconds_per_part=0.05)
        print(app.execute_workflow(export_account, account, id=account.id, timeout=30))
        endless = Account("export-2", parts=10_000, seconds_per_part=0.05)
        run = app.start_workflow(export_account, endless, id=endless.id)
        while not (active := run.describe().pending_activities) or active[0].progress is None:
            time.sleep(0.05)
        print("so far:", active[0].progress.message)
        run.cancel("the customer has changed her mind")
        try:
            run.result(timeout=30)
        except TaskCanceled:
            print("cancelled, and removed")


if __name__ == "__main__":
    main()
