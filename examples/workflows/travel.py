"""A travel booking as a saga: three bookings at three companies, and a payment after which there is only forward.

If something fails before the payment, or the workflow is cancelled, what was booked is cancelled in reverse order. A
compensation is registered before its booking: when a booking times out, nobody knows whether it was made, so cancelling
one that does not exist does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from outside import effect

from perdure import Cancelled, FatalError, Perdure, SagaOutcome, StepError, WorkflowContext, workflow

COMPANIES = ("flight", "hotel", "car")


@dataclass
class Trip:
    """A trip; its id is that of its workflow."""

    id: str
    to: str
    sold_out: str = ""


@dataclass
class Booked:
    """What became of a trip."""

    status: str
    bookings: list[str]
    undone: SagaOutcome | None = None


@workflow
def book_trip(ctx: WorkflowContext, trip: Trip) -> Booked:
    saga = ctx.saga()
    bookings: list[str] = []
    try:
        for company in COMPANIES:
            saga.add_compensation(cancel, trip.id, company, name=f"cancel_{company}")
            bookings.append(ctx.step(f"book_{company}", book, trip, company))
        ctx.step("pay", pay, trip.id)
    except (StepError, Cancelled) as error:
        undone = saga.compensate()
        if isinstance(error, Cancelled):
            raise
        return Booked("cancelled", bookings, undone)
    saga.pivot()
    ctx.step("send_tickets", send_tickets, trip.id, retries=1000)
    return Booked("booked", bookings)


def book(trip: Trip, company: str) -> str:
    if trip.sold_out == company:
        raise FatalError(f"no {company} to {trip.to} is left")
    effect(trip.id, f"book_{company}", trip.to)
    return f"{company}-{trip.id}"


def cancel(trip_id: str, company: str) -> None:
    effect(trip_id, f"cancel_{company}", "if it was booked")


def pay(trip_id: str) -> None:
    effect(trip_id, "pay", "for all of it")


def send_tickets(trip_id: str) -> None:
    effect(trip_id, "send_tickets", "by mail")


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        for trip in (Trip("trip-1", "Oslo"), Trip("trip-2", "Oslo", sold_out="car")):
            booked = app.execute_workflow(book_trip, trip, id=trip.id, timeout=30)
            undone = [each.name for each in booked.undone.compensations_succeeded] if booked.undone else []
            print(trip.id, booked.status, booked.bookings, *undone)


if __name__ == "__main__":
    main()
