"""A handler may fork its process. What the copy does within the handler is its own business, but it must not go on as
a second worker when the handler waits or returns: it shares every connection with the first, and would read and answer
what is meant for that."""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def end_copies(pid: int) -> None:
    """End this process if it is not `pid` but a copy of it."""
    if os.getpid() != pid:
        os._exit(1)


@types.coroutine
def uncopied(coroutine: Coroutine[Any, Any, T], pid: int) -> Generator[Any, Any, T]:
    """Await a coroutine, and end a copy of the process where it would give control back to the event loop."""
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            awaited = step(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        end_copies(pid)
        try:
            value = yield awaited
            step = coroutine.send
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the coroutine
            value, step = error, coroutine.throw
