"""What the parts of the batch and of the store use of the whole, in an SQLite file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.core.model import Task
from perdure.store.rows import Row
from perdure.store.sqlite_rows import Write


class BatchPart(ABC):
    """A part of SqliteBatch."""

    @property
    @abstractmethod
    def now(self) -> int: ...

    @abstractmethod
    async def _rows(self, sql: str, values: Any = ()) -> list[Row]: ...

    @abstractmethod
    async def _rows_of(self, sql: str, given: Sequence[Row]) -> list[Row]: ...

    @abstractmethod
    async def _write(self, sql: str, values: Any = ()) -> int: ...

    @abstractmethod
    async def _write_all(self, writes: Iterable[Write]) -> None: ...

    @abstractmethod
    def _locked(self, found: list[Row]) -> list[Task]: ...


class StorePart(ABC):
    """A part of SqliteStore."""

    @abstractmethod
    async def _rows(self, sql: str, values: Any = ()) -> list[Row]: ...

    @abstractmethod
    async def _alone(self, sql: str, values: Any = ()) -> int: ...

    @abstractmethod
    async def _alone_rows(self, sql: str, values: Any = ()) -> list[Row]: ...
