"""Standard output and error of a process that runs handlers, safe from them.

A handler may close them. As objects: then each later `print` and log line fails. Or as descriptors: then the next
connection gets the number, and what is printed goes to a server. So Python's side of both is moved to descriptors
that nobody else knows, and cannot be closed.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import TextIO


class _Unclosable(io.TextIOWrapper):
    def close(self) -> None:
        """Closing it is not a handler's business."""
        self.flush()


def keep_output() -> None:
    """For a process that is a worker and nothing else."""
    before = sys.stderr
    sys.stdout = _moved(sys.stdout)
    sys.stderr = _moved(before)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(sys.stderr)


def _moved(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # there is none, or somebody has put something of their own there
    stream.flush()
    raw = io.FileIO(os.dup(stream.fileno()), "w")
    return _Unclosable(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
