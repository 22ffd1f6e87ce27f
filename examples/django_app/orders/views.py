"""Accept an order, show an order."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from jobs import enqueue_on_commit

from orders.models import Order
from orders.tasks import charge_order


@csrf_exempt  # an example without a browser
@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    """The order and its job: both, or with a rollback none."""
    item = request.POST.get("item", "")
    with transaction.atomic():
        order = Order.objects.create(item=item)
        enqueue_on_commit(charge_order, order.id, idempotency_key=f"charge order {order.id}")
        if not item:
            transaction.set_rollback(True)
    if not item:
        return JsonResponse({"error": "an order needs an item"}, status=400)
    location = reverse("order", args=[order.id])
    return JsonResponse({"id": order.id}, status=202, headers={"Location": location, "Retry-After": "1"})


@require_GET
def show_order(request: HttpRequest, id: int) -> HttpResponse:
    order = get_object_or_404(Order, id=id)
    return JsonResponse({"id": order.id, "item": order.item, "charged": order.charged})
