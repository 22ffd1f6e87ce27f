"""Order fulfilment: charge, reserve, and wait 72 hours for the customer; if nobody comes, somebody decides.

The wait costs two rows of the database: no thread, no process, no memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from outside import effect

from perdure import FatalError, Perdure, WorkflowContext, workflow


@dataclass
class Order:
    """An order; its id is that of its workflow."""

    id: str
    items: list[str]
    card: str
    pickup: str = "72h"
    decision: str = "24h"


@workflow(name="fulfil")
class Fulfil:
    def __init__(self) -> None:
        self.state = "new"

    def run(self, ctx: WorkflowContext, order: Order) -> str:
        receipt = ctx.step("charge", charge, order, retries=5)
        ctx.parallel("reserve", [(reserve, order.id, item) for item in order.items])
        ctx.step("notify", notify, order.id, f"ready for pick-up, receipt {receipt}")
        self.state = "waiting for pick-up"
        if ctx.wait_for_signal("picked_up", timeout=order.pickup):
            return "picked up"
        return self.escalate(ctx, order)

    def escalate(self, ctx: WorkflowContext, order: Order) -> str:
        """Nobody came: the shop keeps the goods if it says so, else the customer gets the money back."""
        self.state = "escalated"
        ctx.step("escalate", notify, order.id, "nobody has picked it up", "escalate")
        if ctx.wait_for_signal("decision", timeout=order.decision) == "keep":
            return "kept"
        ctx.step("refund", refund, order)
        ctx.parallel("release", [(release, order.id, item) for item in order.items])
        return "refunded"

    @workflow.query
    def status(self) -> str:
        return self.state


def charge(order: Order) -> str:
    if order.card == "expired":
        raise FatalError("the card is expired")
    effect(order.id, "charge", order.card)
    return f"R-{order.id}"


def reserve(order_id: str, item: str) -> None:
    effect(order_id, "reserve", item)


def release(order_id: str, item: str) -> None:
    effect(order_id, "release", item)


def refund(order: Order) -> None:
    effect(order.id, "refund", order.card)


def notify(order_id: str, text: str, step: str = "notify") -> None:
    effect(order_id, step, text)


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        prompt = Order("order-1", ["kettle", "cup"], "visa")
        fetched = app.start_workflow(Fulfil, prompt, id=prompt.id)
        fetched.signal("picked_up")
        print(prompt.id, fetched.result(timeout=30))
        late = Order("order-2", ["lamp"], "visa", pickup="0.2s", decision="0.2s")
        forgotten = app.start_workflow(Fulfil, late, id=late.id)
        print(late.id, forgotten.result(timeout=30), "after it was", forgotten.query("status"))


if __name__ == "__main__":
    main()
