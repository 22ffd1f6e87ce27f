"""The way to the service for what a server carries beside its own interfaces, such as pages for people.

A browser cannot send an API key with each request, so a key is exchanged for a session: a text that names the key by
the start of its hash and is signed with all of it, as URLs of results are (links.py). Every server knows it, none
keeps it, and revoking the key ends it.
"""

from __future__ import annotations

from perdure.api import links
from perdure.api.auth import Gate
from perdure.api.parking import Parking
from perdure.api.service import Caller, Service
from perdure.core.errors import Unauthenticated
from perdure.core.model import SECOND
from perdure.engine.engine import Engine

SESSION_SECONDS = 12 * 3600
"""How long a session is good."""
IDENTITY = "dashboard"
"""What tasks and histories say of who did something there."""
_SUBJECT = "session"


class Door:
    """Gives services of the engine to callers whom the gate admits."""

    def __init__(self, engine: Engine, gate: Gate, parking: Parking) -> None:
        self._engine = engine
        self._gate = gate
        self._parking = parking

    @property
    def locked(self) -> bool:
        """Whether a session is needed."""
        return self._gate.locked

    def sign_in(self, key: str) -> str:
        """A session for whoever has this API key; Unauthenticated when it is not known."""
        bearer = f"Bearer {key}".encode("utf-8", "surrogateescape")
        caller = self._gate.admit([(b"authorization", bearer)])
        if not caller.key:
            raise Unauthenticated("this server has no API keys, and needs none")
        until = self._engine.now() // SECOND + SESSION_SECONDS
        return ".".join(links.sign(caller.key, _SUBJECT, until))

    def enter(self, session: str, namespace: str) -> tuple[str, Service]:
        """The namespace that a request is about, and what it may do there; a session decides its namespace itself.
        Unauthenticated when one is needed and this is none, or it is over."""
        caller = self._caller(session, namespace)
        return caller.namespace, Service(self._engine, caller, parking=self._parking)

    def _caller(self, session: str, namespace: str) -> Caller:
        if not self._gate.locked:
            return Caller(namespace, IDENTITY)
        parts = session.split(".")
        if len(parts) != len(links.Signature._fields):
            raise Unauthenticated("sign in with an API key")
        found = links.admit(self._gate, _SUBJECT, links.Signature(*parts), self._engine.now())
        return Caller(found.namespace, IDENTITY, found.key)
