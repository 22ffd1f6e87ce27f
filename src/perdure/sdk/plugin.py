"""The data converter: where an application may change what payloads look like outside its own processes.

It has two halves, and an application overrides the one it needs. Bytes in, bytes out: encryption, compression. Types
that nothing here knows: what JSON stands for them. Both are plain functions that run where the value is made or read,
the event loop included, so they must not wait for anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core.errors import InvalidArgument

MAX_ENCODING = 50
"""Characters of the name of an encoding."""
_OURS = ("json/plain", "binary/plain", "binary/null")


class DataConverter:
    """Base of data converters, for `Perdure(..., converter=...)`. It holds for payloads, results and checkpoints; what
    is shown to people (the message of a progress, headers, failures) stays readable.

    Set it on every process that enqueues, works or reads results. Of several converters that override `encode` the
    first one writes and all of them read, so a key or a codec can be changed while tasks are open; what was written
    without any is read too. A worker that lacks the one for a payload fails that task with code "undecodable_payload".
    """

    encoding: str = ""
    """The name of what `encode` makes, which each payload carries in its metadata as "encoding": 1 to 50 printable
    ASCII characters, such as "binary/encrypted". Never use a name again for another format."""

    def encode(self, data: bytes) -> bytes:
        """What is stored instead of `data`. An exception refuses the value (InvalidArgument)."""
        return data

    def decode(self, data: bytes) -> bytes:
        """What `encode` was given. An exception means that it cannot be read."""
        return data

    def to_plain(self, value: object) -> object:
        """What stands for a value of a type of its own: str, int, dict and the like, or other types that Perdure
        knows. NotImplementedError for all other types."""
        raise NotImplementedError

    def from_plain(self, kind: type, value: object) -> object:
        """The value of type `kind` that `to_plain` was given. NotImplementedError for all other types; ValueError for
        what is no such value."""
        raise NotImplementedError


def checked(converters: Sequence[DataConverter]) -> Sequence[DataConverter]:
    """InvalidArgument for one without a name of its own."""
    names = [converter.encoding for converter in converters]
    for name in names:
        if not (isinstance(name, str) and 0 < len(name) <= MAX_ENCODING and name.isascii() and name.isprintable()):
            limit = f"1 to {MAX_ENCODING} printable ASCII characters"
            raise InvalidArgument(f"encoding is {name!r}", field="encoding", limit=limit)
        if name in _OURS or names.count(name) > 1:
            raise InvalidArgument(f"the encoding {name!r} is taken", field="encoding", limit="a name of its own")
    return converters
