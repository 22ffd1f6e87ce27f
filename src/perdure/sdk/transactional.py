"""A client that also enqueues in transactions of the application's own."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Unpack

from perdure.core.messages import NewTask
from perdure.sdk.client import AsyncClient, TaskOptions
from perdure.sdk.handle import AsyncJob
from perdure.sdk.hints import ANY
from perdure.sdk.task import R, Task
from perdure.sdk.transaction import Call, Row, Value, enqueue_call, run, run_async


class TransactionalClient(AsyncClient):
    """Calls the SQL function `enqueue_v1` on connections that the application has."""

    async def enqueue_in(
        self,
        connection: object,
        task: Task[..., R] | str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> AsyncJob[R]:
        """A job that exists if the transaction commits that `connection` is in, and never did if it rolls back. Its
        database is the PostgreSQL one of Perdure's store; whether there is a server does not matter here.

        `connection` is an asyncpg or psycopg 3 (async) connection, or a SQLAlchemy AsyncConnection or AsyncSession;
        TypeError otherwise. Everything else is as in `enqueue`, which this raises the errors of; but an error that the
        database tells (IdempotencyConflict, mostly) has ended the transaction, or the savepoint around the call.
        PermissionDenied when its role may not, Conflict when the database has no schema for it.
        """
        call, own = self._call(task, payload, idempotency_key, options)
        return self._made(await run_async(connection, call), own)

    def enqueue_blocking_in(
        self,
        connection: object,
        task: Task[..., R] | str,
        payload: object,
        idempotency_key: str | None,
        options: TaskOptions,
    ) -> AsyncJob[R]:
        """`enqueue_in` on a connection whose methods block, for Perdure.enqueue_in."""
        call, own = self._call(task, payload, idempotency_key, options)
        return self._made(run(connection, call), own)

    def _call(
        self, task: Task[..., Any] | str, payload: object, idempotency_key: str | None, options: TaskOptions
    ) -> tuple[Call, Task[..., Any] | None]:
        new, own = self._new(task, payload, idempotency_key, options)
        return enqueue_call(self._arguments(new)), own

    def _made(self, row: Row, own: Task[..., R] | None) -> AsyncJob[R]:
        task_id, duplicate = row
        return AsyncJob(self, task_id, duplicate, ANY if own is None else own.result)

    @abstractmethod
    def _arguments(self, new: NewTask) -> dict[str, Value]:
        """Those of the SQL function. To check and pack a task is a server's business."""
