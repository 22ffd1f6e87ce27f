"""What the parts of AsyncClient, and those of its blocking face, use of the whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

from perdure.client.base import Service
from perdure.sdk.converter import Converter

T = TypeVar("T")


class AsyncPart(ABC):
    """A part of AsyncClient."""

    converter: Converter
    identity: str

    @abstractmethod
    async def service(self) -> Service:
        """What this client talks to."""

    @abstractmethod
    def headers_of(self, name: str, given: dict[str, str]) -> dict[str, str]:
        """The headers of a task or workflow that is about to be sent, with what the middleware adds."""


class Part(ABC):
    """A part of Perdure: the calls of a part of AsyncClient, each of which blocks."""

    @abstractmethod
    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work`."""
