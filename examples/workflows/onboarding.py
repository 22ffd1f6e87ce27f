"""Onboarding: confirm the address within a week, then two weeks in which the customer may withdraw, then activate."""

from __future__ import annotations

from dataclasses import dataclass

from outside import effect

from perdure import Perdure, WorkflowContext, workflow


@dataclass
class Customer:
    """A customer; the id is that of the workflow."""

    id: str
    address: str
    confirmation: str = "7d"
    cool_off: str = "14d"


@workflow
def onboard(ctx: WorkflowContext, customer: Customer) -> str:
    ctx.step("ask", send, customer, "ask", "please confirm")
    if not ctx.wait_for_signal("confirmed", timeout=customer.confirmation):
        ctx.step("forget", send, customer, "forget", "we have deleted your data")
        return "not confirmed"
    ctx.step("welcome", send, customer, "welcome", "you may withdraw within two weeks")
    if ctx.wait_for_signal("withdrawn", timeout=customer.cool_off):
        ctx.step("farewell", send, customer, "farewell", "your contract is void")
        return "withdrawn"
    ctx.step("activate", send, customer, "activate", "your account is active")
    return "active"


def send(customer: Customer, step: str, text: str) -> None:
    effect(customer.id, step, f"{customer.address}, {text}")


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        for name, signals in (("ann", ["confirmed"]), ("bob", ["confirmed", "withdrawn"]), ("cem", [])):
            customer = Customer(f"customer-{name}", f"{name}@example.org", confirmation="0.5s", cool_off="0.5s")
            run = app.start_workflow(onboard, customer, id=customer.id)
            for signal in signals:
                run.signal(signal)
            print(name, run.result(timeout=30))


if __name__ == "__main__":
    main()
