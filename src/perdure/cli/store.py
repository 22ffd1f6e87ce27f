"""The store that a command names: how it is shown, and what is said when it cannot be used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from perdure.core.durations import seconds
from perdure.core.errors import InvalidArgument, NotFound, Unavailable
from perdure.database import LEAST_RETENTION_SECONDS

StoreOption = Annotated[str, typer.Option(envvar="PERDURE_STORE", help="sqlite:///FILE or postgresql://...")]
RetentionOption = Annotated[str, typer.Option(help="How long closed tasks are kept: 1d at least.")]
RETENTION = "30d"

_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(:\d*)?")
_FILE = "sqlite:///"
_PASSWORDS = ((re.compile(r"://([^:/?@]*):.*@"), r"://\1@"), (re.compile(r"(password=)[^&]*"), r"\1..."))


def shown(url: str) -> str:
    """A URL without its password."""
    for pattern, instead in _PASSWORDS:
        url = pattern.sub(instead, url)
    return url


@contextmanager
def using(url: str) -> Iterator[None]:
    """Errors of a store say in one line which store it is, and what its URL may be."""
    try:
        _check_hosts(url)
        yield
    except Unavailable as fault:
        raise Unavailable(f"{shown(url)}: {' '.join(fault.detail.split())}", field="store") from fault
    except InvalidArgument as error:
        if error.field != "url":
            raise
        raise InvalidArgument(
            f"{shown(url)!r} is no URL of a store; write sqlite:///jobs.db or postgresql://user@host/name", field="url"
        ) from None


def _check_hosts(url: str) -> None:
    """InvalidArgument for what the driver would trip over, mostly a password with a character that belongs escaped."""
    if not url.startswith(("postgresql://", "postgres://")):
        return
    try:
        hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    except ValueError:  # brackets without their counterpart
        hosts = ["["]
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise InvalidArgument(
            f"{shown(url)!r} has no host and port that can be read; in user and password write : / ? # [ ] @ as %XX",
            field="store",
        )


def kept_seconds(retention: str) -> float:
    """Of a RetentionOption."""
    return seconds(retention, "retention", least=LEAST_RETENTION_SECONDS)


def need_file(url: str) -> None:
    """NotFound when a store would first have to be made: nothing can be read there."""
    path = url.removeprefix(_FILE)
    if path not in (url, "", ":memory:") and not Path(path).exists():
        raise NotFound(f"{url}: there is no such file", field="store")
