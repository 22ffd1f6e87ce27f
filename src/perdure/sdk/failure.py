"""Exceptions to failures: what a handler raised, in a form that every reader can show and none has to load.

Whatever the exception is (huge, cyclic, with a `str` that raises, of a class that nobody else can import), the failure
names its class, a message and a traceback, each cut to a bound (field case B134).
"""

from __future__ import annotations

import traceback
from types import TracebackType

from perdure.core.errors import FatalError
from perdure.core.model import Failure
from perdure.sdk.retry import steers

MAX_MESSAGE = 8 * 1024
MAX_CAUSE_MESSAGE = 1024
MAX_STACK = 32 * 1024  #: bytes, over an exception and all its causes
MAX_CAUSES = 10
_MAX_TYPE = 255
_CUT = " ..."


def to_failure(error: BaseException, *, code: str = "", skip: int = 0) -> Failure:
    """The failure of an attempt that ended with `error`. `code` defaults to "fatal" for FatalError (also one in a
    group), else "handler_error"; `skip` is the number of outermost frames that are not the application's."""
    frames = error.__traceback__
    for _ in range(skip):
        frames = frames.tb_next if frames is not None else None
    fatal = isinstance(steers(error), FatalError)
    stack = _stack(frames, MAX_STACK)
    return Failure(
        message=message_of(error),
        code=code or ("fatal" if fatal else "handler_error"),
        type=type(error).__name__[:_MAX_TYPE],
        stack=stack,
        retryable=not fatal,
        cause=_cause(error, {id(error)}, MAX_STACK - len(stack)),
    )


def _cause(error: BaseException, seen: set[int], room: int) -> Failure | None:
    cause = error.__cause__
    if cause is None and isinstance(error, BaseExceptionGroup):
        cause = error.exceptions[0]  # what went wrong; the group only says that something did
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is None or id(cause) in seen or len(seen) > MAX_CAUSES:
        return None
    seen.add(id(cause))
    stack = _stack(cause.__traceback__, room)
    return Failure(
        message=_message(cause, MAX_CAUSE_MESSAGE),
        type=type(cause).__name__[:_MAX_TYPE],
        stack=stack,
        cause=_cause(cause, seen, room - len(stack)),
    )


def message_of(error: BaseException) -> str:
    """What an exception says, cut to MAX_MESSAGE bytes."""
    return _message(error, MAX_MESSAGE)


def is_cut(failure: Failure) -> bool:
    """Whether its message, or that of a cause, is not whole."""
    causes: Failure | None = failure
    while causes is not None:
        if causes.message.endswith(_CUT):
            return True
        causes = causes.cause
    return False


def cut(text: str) -> str:
    """`text` within MAX_MESSAGE bytes of UTF-8."""
    return _cut(text, MAX_MESSAGE)


def _message(error: BaseException, most: int) -> str:
    try:
        text = str(error)
    except BaseException as fault:  # noqa: BLE001 - the application's own code, and it may raise anything
        text = f"<str() raised {type(fault).__name__}>"
    return _cut(text, most)


def _stack(frames: TracebackType | None, most: int) -> str:
    """The innermost frames that fit."""
    text = "".join(traceback.format_tb(frames)) if most > 0 else ""
    data = text.encode("utf-8", "backslashreplace")
    return data[-most:].decode("utf-8", "ignore") if len(data) > most else data.decode()


def _cut(text: str, most: int) -> str:
    data = text[: most + 1].encode("utf-8", "backslashreplace")
    if len(data) <= most:
        return data.decode()
    return data[: most - 4].decode("utf-8", "ignore") + _CUT
