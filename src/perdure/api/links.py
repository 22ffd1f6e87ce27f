"""URLs of results that are good for a while without an API key, for a browser or a download tool (JOB-04).

A signature is made with the hash of the key of whoever asked for the job, which every server knows and nobody else. So
any server can check what another one signed, and revoking the key ends its URLs too. Where no key is needed, no URL is
signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import urlencode

from perdure.api.auth import Gate
from perdure.api.service import Caller
from perdure.core.errors import Unauthenticated
from perdure.core.model import SECOND

LIFE_SECONDS = 900
"""How long a signed URL is good."""
_START = 8
"""Bytes of a key's hash that a URL carries to say which one it is."""


class Signature(NamedTuple):
    """The query of a signed URL: the start of the key's hash, the end of its life in seconds, and what proves both."""

    key: str
    expires: str
    signature: str


def result_url(caller: Caller, task_id: str, now: int) -> str:
    """Where the result of a job is; `now` in microseconds."""
    path = f"/v1/jobs/{task_id}/result"
    if not caller.key:
        return path if caller.namespace == "default" else f"{path}?{urlencode({'namespace': caller.namespace})}"
    signed = sign(caller.key, task_id, now // SECOND + LIFE_SECONDS)
    return f"{path}?{urlencode(signed._asdict())}"


def sign(key: bytes, subject: str, until: int) -> Signature:
    """Proof, good up to a time in seconds, that the owner of a key wanted it for a subject: a task, or a session."""
    expires = str(until)
    return Signature(key[:_START].hex(), expires, _signature(key, subject, expires))


def admit(gate: Gate, subject: str, given: Signature, now: int) -> Caller:
    """Whom a signature speaks for; Unauthenticated when it is none for this subject, too old, or its key was
    revoked."""
    try:
        start, expires = bytes.fromhex(given.key), int(given.expires)
    except ValueError:
        start, expires = b"", 0
    for hash in gate.hashes(start) if len(start) == _START else ():
        right = _signature(hash, subject, given.expires)
        if hmac.compare_digest(right.encode(), given.signature.encode("utf-8", "surrogatepass")):
            if expires * SECOND < now:
                raise Unauthenticated(f"this URL was good until {expires}; ask for the job again")
            return Caller(gate.namespace(hash) or "", key=hash)
    raise Unauthenticated("this URL is not signed by a key of this server; ask for the job again")


def _signature(hash: bytes, subject: str, expires: str) -> str:
    digest = hmac.digest(hash, f"{subject} {expires}".encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
