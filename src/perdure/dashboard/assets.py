"""Style sheet, scripts and icon, read once. Their names hold a part of their hash, so browsers keep them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file as it is sent."""

    name: str
    type: str
    content: bytes


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Asset(f"{path.stem}.{digest}{path.suffix}", _TYPES[path.suffix], content)


_FOUND = {path.name: _read(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
FILES = {asset.name: asset for asset in _FOUND.values()}
"""By the name under which they are served."""


def address(name: str) -> str:
    """Where a file is served, relative to a page."""
    return f"static/{_FOUND[name].name}"
