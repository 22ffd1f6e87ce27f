"""The API keys of the reference store."""

from __future__ import annotations

from collections.abc import Callable

from perdure.store.base import ApiKey


class MemoryKeys:
    """See base.Store. `clock` gives microseconds since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._api_keys: dict[bytes, ApiKey] = {}

    async def api_keys(self) -> dict[bytes, str]:
        return {key.hash: key.namespace for key in self._api_keys.values()}

    async def add_api_key(self, hash: bytes, namespace: str, label: str) -> None:
        known = self._api_keys.get(hash)
        made = self._clock() if known is None else known.created_at
        self._api_keys[hash] = ApiKey(hash, namespace, label, made)

    async def list_api_keys(self) -> list[ApiKey]:
        return sorted(self._api_keys.values(), key=lambda key: (key.created_at, key.hash))

    async def remove_api_key(self, hash: bytes) -> bool:
        return self._api_keys.pop(hash, None) is not None
