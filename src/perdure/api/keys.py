"""API keys: random, and stored only as their hash (SEC-02)."""

from __future__ import annotations

import hashlib
import secrets

PREFIX = "pdk_"
"""Start of every key, so that scanners for leaked secrets can find them."""


def new_key() -> str:
    """A fresh API key: 32 random bytes as text."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    """What is stored of a key. A plain hash is enough: 32 random bytes cannot be guessed."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
