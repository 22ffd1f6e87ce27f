"""What a worker process hears from outside: signals, and the end of its supervisor.

The first SIGTERM or SIGINT drains; the second exits at once with status 128 + its number (field case B123). A
supervised process also drains when its supervisor is gone: it holds the reading end of a pipe that nobody writes
to, and which ends with the supervisor, however that died.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

SUPERVISED = "PERDURE_SUPERVISED"
"""Environment variable of a supervised process: its incarnation and the descriptor of the pipe, such as "123:4"."""


def on_stop_signals(stop: Callable[[], None], force: Callable[[], None] | None = None) -> None:
    """Call `stop`, on the running loop, at the first SIGTERM or SIGINT; at the second call `force` and exit. For a
    process whose only business this loop is: the handlers stay."""
    loop = asyncio.get_running_loop()
    heard = False

    def hear(number: int) -> None:
        nonlocal heard
        if heard:
            if force is not None:
                force()
            os._exit(128 + number)
        heard = True
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hear, number)


class Lifeline:
    """A supervised process's tie to its supervisor, which also chose its incarnation."""

    def __init__(self, incarnation: int, pipe: int) -> None:
        self.incarnation = incarnation
        self._pipe = pipe

    @staticmethod
    def taken() -> Lifeline | None:
        """That of this process, if it is supervised; once, so that processes which handlers start have none."""
        value = os.environ.pop(SUPERVISED, "")
        if not value:
            return None
        incarnation, _, pipe = value.partition(":")
        os.set_inheritable(int(pipe), False)
        return Lifeline(int(incarnation), int(pipe))

    def watch(self, ended: Callable[[], None]) -> None:
        """Call `ended`, on the running loop, when the supervisor is gone."""
        loop = asyncio.get_running_loop()

        def hear() -> None:
            loop.remove_reader(self._pipe)
            ended()

        loop.add_reader(self._pipe, hear)
