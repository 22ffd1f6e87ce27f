"""Log records that say which task they belong to.

A context variable holds the attempt that runs, in the asyncio task of an async handler and in the thread of a plain
one; whatever is started from there with the context of its starter (asyncio tasks, `asyncio.to_thread`) has it too.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

from perdure.sdk.context import Context

RUNNING: ContextVar[Context | None] = ContextVar("perdure_running", default=None)
"""The attempt that runs here, if any."""


class TaskLogFilter(logging.Filter):
    """Gives every record `task_id`, `task_type` and `attempt`, and `task`, all three in words, to stand before the
    message. Outside of handlers they are "", "", 0 and "". Perdure's own records name their task themselves, so `task`
    is "" in them. Lets all records pass.

    Add it to a handler of `logging`, not to a logger: loggers apply their filters only to what is logged with that very
    logger. `perdure worker` and `perdure dev` have it on theirs.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "task_id"):  # it was logged in another process
            return True
        ctx = RUNNING.get()
        record.task_id = "" if ctx is None else ctx.task_id
        record.task_type = "" if ctx is None else ctx.type
        record.attempt = 0 if ctx is None else ctx.attempt
        if ctx is None or record.name.startswith("perdure."):
            record.task = ""
        else:
            record.task = f"{ctx.type} {ctx.task_id} attempt {ctx.attempt}: "
        return True
