"""The one Perdure object of the project, and what Django adds to it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import close_old_connections, transaction

from perdure import Context, Middleware, Perdure, Task


class DjangoConnections(Middleware):
    """Handlers run in threads that live long, so do as Django does around a request: let go of connections that are
    broken or too old."""

    def before(self, ctx: Context, payload: Any) -> None:
        close_old_connections()

    def after(self, ctx: Context, result: Any) -> None:
        close_old_connections()

    def error(self, ctx: Context, error: BaseException) -> None:
        close_old_connections()


app = Perdure(settings.PERDURE_URL, middleware=[DjangoConnections()])


def enqueue_on_commit(task: Task[..., Any], payload: Any, **options: Any) -> None:
    """Enqueue once the transaction around this call has committed: a worker never looks for rows that are not there
    yet, and a rollback enqueues nothing. Outside of a transaction, at once."""
    transaction.on_commit(lambda: app.enqueue(task, payload, **options))
