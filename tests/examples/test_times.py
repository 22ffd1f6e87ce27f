"""The waits of the examples at their real length, on a clock that jumps: hours, weeks and years take milliseconds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from perdure import TaskCanceled
from perdure.testing import jumping
from tests.examples.processes import EXAMPLES

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Load]:
    """Imports an example; afterwards nothing of it is known."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects.txt"))
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and EXAMPLES in Path(str(sys.modules[name].__file__)).parents:
            del sys.modules[name]


def effects(folder: Path) -> list[str]:
    """What was done, step by step."""
    return [line.split()[1].rstrip(":") for line in (folder / "effects.txt").read_text().splitlines()]


@pytest.mark.parametrize(
    ("signals", "ends", "hours", "last"),
    [
        ([("picked_up", None)], "picked up", 0, "notify"),
        ([("decision", "keep")], "kept", 72, "escalate"),
        ([], "refunded", 72 + 24, "release"),
    ],
)
def test_an_order_waits_three_days(
    load: Load, tmp_path: Path, signals: list[tuple[str, object]], ends: str, hours: int, last: str
) -> None:
    order = load("order")
    with jumping() as env:
        began = env.now
        run = env.app.start_workflow(order.Fulfil, order.Order("o", ["cup"], "visa"), id="o")
        for name, value in signals:
            run.signal(name, value)
        assert run.result() == ends
        assert env.now - began == timedelta(hours=hours)
    assert effects(tmp_path)[-1] == last


@pytest.mark.parametrize(
    ("signals", "ends", "days"),
    [(["confirmed"], "active", 14), (["confirmed", "withdrawn"], "withdrawn", 0), ([], "not confirmed", 7)],
)
def test_onboarding_has_its_cool_off(load: Load, signals: list[str], ends: str, days: int) -> None:
    onboarding = load("onboarding")
    with jumping() as env:
        began = env.now
        run = env.app.start_workflow(onboarding.onboard, onboarding.Customer("c", "ann@example.org"), id="c")
        for signal in signals:
            run.signal(signal)
        assert run.result() == ends
        assert env.now - began == timedelta(days=days)


def test_five_years_of_a_subscription(load: Load) -> None:
    """RPLY-42, RPLY-47: five runs of one workflow id, and none has a long history."""
    subscription = load("subscription")
    with jumping() as env:
        began = env.now
        contract = subscription.Contract("s", "small", months=60)
        run = env.app.start_workflow(subscription.Subscription, contract, id="s")
        env.run("45d")
        assert run.query("account")["billed"] == 2
        assert run.update("change_plan", "large") == 12
        paid = run.result()
        assert (paid.billed, paid.paid) == (60, 2 * 5 + 58 * 12)
        assert env.now - began == timedelta(days=60 * 30)
        runs = env.app.list_workflows(workflow_id="s").workflows
        assert [view.status for view in runs] == ["COMPLETED"] + 5 * ["CONTINUED_AS_NEW"]
        assert max(view.history_length for view in runs) < 150


def test_a_trip_that_is_cancelled_is_undone(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CANC-04, SAGA-11, SAGA-15: what was booked when the cancel came, and what was about to be. The step that was
    claimed before the worker heard of it may still run."""
    travel = load("travel")
    book = travel.book
    with jumping() as env:
        run = env.app.start_workflow(travel.book_trip, travel.Trip("t", "Oslo"), id="t")

        def booked(trip: object, company: str) -> object:
            if company == "hotel":
                run.cancel("the conference is off")
            return book(trip, company)

        monkeypatch.setattr(travel, "book", booked)
        with pytest.raises(TaskCanceled):
            run.result()
    done = effects(tmp_path)
    assert "book_car" not in done or "cancel_car" in done
    rest = [effect for effect in done if not effect.endswith("_car")]
    assert rest == ["book_flight", "book_hotel", "cancel_hotel", "cancel_flight"]


@pytest.mark.parametrize(("decision", "ends"), [("no", "nothing was bought"), (None, "nothing was bought")])
def test_an_agent_buys_nothing_without_approval(load: Load, tmp_path: Path, decision: str | None, ends: str) -> None:
    agent = load("agent")
    with jumping() as env:
        run = env.app.start_workflow(agent.Agent, agent.Goal("a", "buy", seconds_per_word=0.0), id="a")
        if decision is not None:
            run.signal("decision", decision)
        assert run.result() == ends
    assert "buy" not in effects(tmp_path)
