"""What the parts of the reference store use of the whole."""

from __future__ import annotations

from abc import ABC, abstractmethod

from perdure.store.memory_locks import Tables


class StorePart(ABC):
    """A part of MemoryStore."""

    _tables: Tables

    @abstractmethod
    async def pause(self) -> None:
        """Let another task run, if a test wants one to."""
