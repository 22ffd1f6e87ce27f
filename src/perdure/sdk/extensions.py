"""What an application adds to its clients and workers: `Perdure(url, converter=..., middleware=..., lifespan=...)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypedDict

from perdure.sdk.middleware import Middleware
from perdure.sdk.middleware import checked as checked_middleware
from perdure.sdk.plugin import DataConverter

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


class Extensions(TypedDict, total=False):
    """All may be left out.

    converter   what payloads, results and checkpoints look like outside: a DataConverter or several, of which the first
                writes and all read
    middleware  what happens around every handler, the first one outermost
    lifespan    what handlers share: a function of the AsyncPerdure that returns an async context manager. Each worker
                process enters it before its first task and leaves it after its last one; what it yields is `ctx.state`
    """

    converter: DataConverter | Sequence[DataConverter]
    middleware: Sequence[Middleware]
    lifespan: Lifespan | None


def converters(extensions: Extensions) -> tuple[DataConverter, ...]:
    """Its data converters, the one that writes first."""
    given = extensions.get("converter", ())
    return (given,) if isinstance(given, DataConverter) else tuple(given)


def checked(extensions: Extensions) -> Extensions:
    """TypeError for what is none of them or cannot be used."""
    if unknown := extensions.keys() - Extensions.__annotations__.keys():
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    checked_middleware(extensions.get("middleware", ()))
    lifespan = extensions.get("lifespan")
    if lifespan is not None and not callable(lifespan):
        raise TypeError("lifespan must be a function of the app that returns an async context manager")
    return extensions
