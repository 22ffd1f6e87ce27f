"""A subscription: a charge every month, for years. Each run bills a year and then continues as new, so that no history
grows beyond a year, while the workflow id stays the same.

The customer changes the plan by an update, which answers what it costs from now on, and ends it by a signal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from outside import effect

from perdure import Perdure, WorkflowContext, workflow

PRICES = {"small": 5, "large": 12}
MONTHS_PER_RUN = 12


@dataclass
class Contract:
    """What one run hands to the next. The id is that of the workflow."""

    id: str
    plan: str
    months: int
    month: str = "30d"
    billed: int = 0
    paid: int = 0


@workflow(name="subscription")
class Subscription:
    def __init__(self) -> None:
        self.contract: Contract | None = None
        self.ended = False

    async def run(self, ctx: WorkflowContext, contract: Contract) -> Contract:
        self.contract = contract
        for _ in range(MONTHS_PER_RUN):
            if self.ended or contract.billed == contract.months:
                return contract
            paid = await ctx.step("bill", bill, replace(contract))
            contract.billed += 1
            contract.paid += paid
            await ctx.wait_condition(lambda: self.ended, timeout=contract.month)
        await ctx.wait_condition(ctx.all_handlers_finished)
        return ctx.continue_as_new(contract)

    @workflow.signal
    def end(self) -> None:
        self.ended = True

    @workflow.query
    def account(self) -> Contract | None:
        return self.contract

    @workflow.update
    def change_plan(self, plan: str) -> int:
        """Answers what a month costs from now on."""
        assert self.contract is not None
        self.contract.plan = plan
        return PRICES[plan]

    @change_plan.validator
    def is_a_plan(self, plan: str) -> None:
        if plan not in PRICES:
            raise ValueError(f"there is no plan {plan!r}")


def bill(contract: Contract) -> int:
    price = PRICES[contract.plan]
    effect(contract.id, "bill", f"month {contract.billed + 1}, {price} EUR")
    return price


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        years = Contract("subscription-1", "small", months=30, month="10ms")
        print("30 months cost", app.execute_workflow(Subscription, years, id=years.id, timeout=60).paid)
        short = Contract("subscription-2", "small", months=30)
        run = app.start_workflow(Subscription, short, id=short.id)
        print("from now on", run.update("change_plan", "large", timeout=30))
        run.signal("end")
        print("ended after", run.result(timeout=30).billed, "month")


if __name__ == "__main__":
    main()
