"""The jobs of this app."""

from __future__ import annotations

from orders.models import Order
from perdure import Context, RetryPolicy, task


@task(retries=RetryPolicy(max_attempts=10), timeout="1m")
def charge_order(ctx: Context, order_id: int) -> bool:
    """Harmless when it runs twice: the second run finds that it is done."""
    return Order.objects.filter(id=order_id, charged=False).update(charged=True) == 1
