"""What the two transports share: packed bodies go in, replies or errors come out."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from perdure.core import messages as m
from perdure.core.errors import (
    Internal,
    InvalidArgument,
    NotFound,
    PayloadTooLarge,
    PerdureError,
    PermissionDenied,
    Problem,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    from_problem,
)
from perdure.core.limits import MAX_WAIT_SECONDS

CONNECT_SECONDS = 5.0
"""For one try to connect."""
ANSWER_SECONDS = 15.0
"""How long an answer may take beyond what the server was asked to wait; then its connection counts as broken."""


def answer_within(wait: float) -> float:
    """The seconds that a request which asks the server to wait for `wait` seconds is given."""
    return min(max(0.0, wait), MAX_WAIT_SECONDS) + ANSWER_SECONDS


class ConnectionBroken(Exception):
    """No answer will come on this connection. Unless `sent`, the server surely did not see the request."""

    def __init__(self, detail: str, *, sent: bool) -> None:
        super().__init__(detail)
        self.sent = sent


class Transport(Protocol):
    async def ask(self, op: str, data: bytes, wait: float) -> Any:
        """The reply to a packed body that the server may hold back for `wait` seconds; ConnectionBroken, or the error
        that the server answered."""
        ...

    async def close(self) -> None: ...


pack = msgspec.msgpack.Encoder().encode
_replies = {op: msgspec.msgpack.Decoder(reply).decode for op, (_, reply) in m.OPS.items()}
_problem = msgspec.msgpack.Decoder(Problem).decode
_STATUS: dict[int, type[PerdureError]] = {
    400: InvalidArgument,
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    413: PayloadTooLarge,
    429: ResourceExhausted,
}


def read_reply(op: str, status: int, data: bytes | msgspec.Raw) -> Any:
    """The reply, or its error raised; `status` 0 and 200 are good. What does not speak the protocol (a proxy's error
    page) is told by its status alone."""
    try:
        if status in (0, 200):
            return _replies[op](data)
        error = from_problem(_problem(data))
    except msgspec.DecodeError:
        error = refused(status, f"the server answered {status} and something that cannot be read")
    raise error


def refused(status: int, detail: str) -> PerdureError:
    """The error for an HTTP status without a problem document."""
    kind = _STATUS.get(status, Unavailable if status >= 500 else Internal)
    return kind(detail)
