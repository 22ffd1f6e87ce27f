"""What the parts of the batch and of the store use of the whole, on PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg


class BatchPart(ABC):
    """A part of PostgresBatch."""

    @property
    @abstractmethod
    def now(self) -> int: ...

    @abstractmethod
    async def _fetch(self, name: str, *args: Any) -> list[asyncpg.Record]: ...

    @abstractmethod
    async def _write(self, name: str, *args: Any) -> int: ...

    @abstractmethod
    async def _copy(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    async def _locked(self, name: str, *args: Any) -> list[tuple[Any, ...]]: ...


class StorePart(ABC):
    """A part of PostgresStore."""

    @abstractmethod
    async def _read(self, name: str, *args: object) -> list[asyncpg.Record]: ...

    @abstractmethod
    async def _read_sql(self, doing: str, sql: str, *args: object) -> list[asyncpg.Record]: ...

    @abstractmethod
    async def _short(self, name: str, *args: object) -> list[asyncpg.Record]: ...
