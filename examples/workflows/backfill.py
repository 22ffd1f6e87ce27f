"""A backfill of 50 million rows, in miniature: chunks in parallel, batches within a chunk, and a checkpoint after each.

One run of the workflow is 20 chunks (80 events); then it continues as new behind the rows that are done. So a table of
any size has a short history, and a crash costs at most the batches of the last second: each attempt of a chunk begins
behind its last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outside import effect

from perdure import Context, Perdure, WorkflowContext, task, workflow

ROUNDS_PER_RUN = 5


@dataclass
class Backfill:
    """The id is that of the workflow."""

    id: str
    rows: int = 50_000_000
    chunk: int = 100_000  #: rows of one activity
    batch: int = 1_000  #: rows of one transaction
    at_once: int = 4  #: chunks
    done: int = 0  #: rows that earlier runs have filled


@dataclass
class Chunk:
    """Rows from `first` to before `end`."""

    backfill_id: str
    first: int
    end: int
    batch: int


@workflow
def backfill(ctx: WorkflowContext, job: Backfill) -> int:
    done = job.done
    for _ in range(ROUNDS_PER_RUN):
        if done >= job.rows:
            return done
        end = min(done + job.at_once * job.chunk, job.rows)
        chunks = [Chunk(job.id, first, min(first + job.chunk, end), job.batch) for first in range(done, end, job.chunk)]
        ctx.parallel("chunks", [(fill_chunk, chunk) for chunk in chunks])
        done = end
    return ctx.continue_as_new(replace(job, done=done))


@task(retries=10, timeout="1h")
def fill_chunk(ctx: Context, chunk: Chunk) -> None:
    for first in range(ctx.last_checkpoint or chunk.first, chunk.end, chunk.batch):
        end = min(first + chunk.batch, chunk.end)
        # Real code: UPDATE people SET email = lower(email) WHERE id >= first AND id < end. Twice is as good as once.
        effect(chunk.backfill_id, "fill_chunk", f"rows {first} to {end}")
        ctx.checkpoint(end)


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        job = Backfill("backfill-1", rows=50_000, chunk=1_000, batch=100)
        print("filled", app.execute_workflow(backfill, job, id=job.id, timeout=60), "rows")


if __name__ == "__main__":
    main()
