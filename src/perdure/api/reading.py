"""Reads of the store on behalf of a caller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from perdure.core import ids
from perdure.core.errors import Unavailable
from perdure.core.model import Task
from perdure.store.base import StoreFault

log = logging.getLogger("perdure.api")

T = TypeVar("T")


def readable(view: Callable[[Task], T], tasks: Sequence[Task]) -> list[T]:
    """The views of tasks. A row that cannot be read (written by another version, say) must not hide all others."""
    found: list[T] = []
    for task in tasks:
        try:
            found.append(view(task))
        except Exception:  # whatever its bytes make of the decoder
            name = ids.text(task.id)
            log.exception("task %s cannot be read and is left out", name, extra={"task_id": name})
    return found


@contextmanager
def reading() -> Iterator[None]:
    """A read that the database did not do may be tried again."""
    try:
        yield
    except StoreFault as fault:
        raise Unavailable(f"the database does not answer: {fault}", retry_after=1.0) from fault
