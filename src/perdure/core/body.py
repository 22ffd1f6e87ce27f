"""The base of everything on the wire."""

from __future__ import annotations

import msgspec


class Body(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Base of all bodies. They hold values only, never each other in a circle, so the collector need not track them."""
