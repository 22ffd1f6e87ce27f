"""Which URLs a webhook may lead to.

Whoever may register an endpoint must not reach with it what only this server can reach: only addresses of the open
internet will do. What a name stands for is known when it is resolved (post.py).
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from perdure.core.errors import InvalidArgument

_MAX_URL = 2_000
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_url(url: str, *, private: bool) -> str:
    """InvalidArgument unless it is an http(s) URL that may be sent to, as far as that can be seen without a look-up."""
    limit = f"http:// or https:// with a host, no user, at most {_MAX_URL} characters"
    if not isinstance(url, str) or len(url) > _MAX_URL or not url.isprintable() or not url.isascii() or " " in url:
        raise InvalidArgument("url cannot be used", field="url", limit=limit, kind=type(url).__name__)
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as fault:
        raise InvalidArgument(f"url: {fault}", field="url", limit=limit, kind="str") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.password is not None:
        raise InvalidArgument(f"url is {url[:100]!r}", field="url", limit=limit, kind="str")
    if not private and (host == "localhost" or _is_inside(host)):
        raise InvalidArgument(
            f"{host} is not on the open internet; start the server with --webhooks-to-private to allow it",
            field="url", limit="a public address", kind="str",
        )  # fmt: skip
    return url


def _is_inside(host: str) -> bool:
    """Whether it is an address, and none of the open internet."""
    try:
        return not is_public(host)
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet; also behind what carries IPv4 in IPv6. ValueError when it is no
    address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            ip = inner
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
