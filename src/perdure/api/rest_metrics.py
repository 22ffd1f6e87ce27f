"""`GET /metrics`: what Prometheus reads from a server."""

from __future__ import annotations

from litestar import Response, get
from litestar.di import NamedDependency

from perdure.api.request import Calling
from perdure.observe.metrics import CONTENT_TYPE, Metrics


@get("/metrics", include_in_schema=False)
async def metrics(caller: Calling, figures: NamedDependency[Metrics]) -> Response[bytes]:
    """The metrics of this server in the text format of Prometheus. Where the server wants an API key so does this, and
    shows nothing of other namespaces than the key's."""
    page = await figures.page(caller.namespace if caller.key else None)
    return Response(page, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
