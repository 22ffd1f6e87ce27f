"""Who calls. An API key belongs to one namespace (SEC-02, SEC-05).

While the store holds no key, everybody who reaches the server is trusted and names its namespace itself; server.py
therefore binds such a server to the loopback interface only. A server that has seen a key asks for one as long as it
runs: revoking the last one opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.api.keys import hash_key
from perdure.api.service import Caller
from perdure.core import limits
from perdure.core.errors import PermissionDenied, Unauthenticated, Unavailable
from perdure.engine.outage import Outage
from perdure.engine.service import Loop
from perdure.store.base import Store, StoreFault

RELOAD_SECONDS = 1.0
"""How long a server may not know of a key that was added or removed elsewhere."""

Headers = Iterable[tuple[bytes, bytes]]
"""As ASGI carries them: lower-case names."""


class Gate:
    """Turns the headers of a request into a Caller. The keys are read once a second beside the requests, none of which
    waits for the database: heartbeats must pass while it is slow, and those known stay valid while it is away."""

    name = "keys"

    def __init__(self, store: Store, outage: Outage | None = None) -> None:
        self._store = store
        self._keys: dict[bytes, str] | None = None
        self._locked = False
        self._loop = Loop(self, outage)

    @property
    def locked(self) -> bool:
        """Whether a key is needed; known after `start`."""
        return self._locked

    async def start(self) -> None:
        """Read the keys, and from then on again and again. Unavailable when the database does not answer."""
        try:
            await self.run_once()
        except StoreFault as fault:
            raise Unavailable(f"the API keys cannot be read: {fault}", retry_after=1.0) from fault
        self._loop.start()

    async def stop(self) -> None:
        """Idempotent, and safe before start."""
        await self._loop.stop()

    async def run_once(self) -> float:
        self._keys = await self._store.api_keys()
        self._locked = self._locked or bool(self._keys)
        return RELOAD_SECONDS

    def admits(self, caller: Caller) -> bool:
        """Whether a caller that was admitted once still is: its key has not been revoked."""
        return not self._locked or (self._keys is not None and self._keys.get(caller.key) == caller.namespace)

    def namespace(self, hash: bytes) -> str | None:
        """The namespace of a key, by the hash of it; None when it is not known (any more)."""
        return None if self._keys is None else self._keys.get(hash)

    def hashes(self, start: bytes) -> list[bytes]:
        """The hashes of keys that begin like this."""
        return [hash for hash in self._keys or () if hash.startswith(start)]

    def admit(self, headers: Headers) -> Caller:
        """The caller; Unauthenticated without a valid key where one is needed, PermissionDenied when the key is of
        another namespace than the one that the request names, Unavailable before the keys are known."""
        if self._keys is None:
            raise Unavailable("the API keys are not known yet", retry_after=1.0)
        found = {name: value for name, value in headers if name in _READ}
        named = found.get(b"perdure-namespace", b"").decode("utf-8", "surrogateescape")
        identity = limits.text(
            found.get(b"perdure-identity", b"").decode("utf-8", "surrogateescape"), "perdure-identity"
        )
        if not self._locked:
            return Caller(limits.name(named or "default", "perdure-namespace"), identity)
        scheme, _, key = found.get(b"authorization", b"").decode("utf-8", "surrogateescape").partition(" ")
        if not key:
            raise Unauthenticated("send the header Authorization: Bearer pdk_...")
        hash = hash_key(key.strip())
        namespace = self._keys.get(hash) if scheme.lower() == "bearer" else None
        if namespace is None:
            raise Unauthenticated("the API key is not known, or was revoked")
        if named and named != namespace:
            raise PermissionDenied(f"the API key is not of namespace {named[:50]!r}")
        return Caller(namespace, identity, hash)


_READ = (b"authorization", b"perdure-namespace", b"perdure-identity")
