"""What may start and what is asked for: weights, processes, and who waits for whom."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Task
from perdure.core.messages import Delivery
from perdure.worker.slots import Ask, Slots


def function(ctx: Any, payload: Any) -> None: ...


TASKS: dict[str, Task[..., Any]] = {
    "light": Task(function, "light"),
    "heavy": Task(function, "heavy", weight=6),
    "huge": Task(function, "huge", weight=1000),
    "computes": Task(function, "computes", process=True),
}


def slots(*names: str, queues: tuple[str, ...] = ("a", "b"), total: int = 10, processes: int = 2) -> Slots:
    return Slots({name: TASKS[name] for name in names}, queues, total, processes, batch=50)


def deliveries(*names: str, queue: str = "a") -> list[Delivery]:
    return [Delivery("id", b"lease", name, queue, 1, 5) for name in names]


def asked(slots: Slots, poller: int = 0) -> Ask:
    ask = slots.ask(poller)
    assert ask is not None
    return ask


def test_light_tasks_are_asked_for_as_many_as_there_are_slots() -> None:
    """WORK-09."""
    some = slots("light")
    ask = asked(some)
    assert (ask.capacity, ask.slots, some.free) == (10, 10, 0)
    assert some.ask(0) is None
    assert some.admit(ask, deliveries(*["light"] * 3)) == [True] * 3
    assert some.free == 7
    some.give_back(*deliveries("light"))
    assert some.free == 8


def test_a_poll_asks_for_what_would_fit_if_it_were_like_the_last() -> None:
    some = slots("light", "heavy")
    ask = asked(some)
    assert (ask.capacity, ask.slots) == (1, 6)  # the first guess is the heaviest
    assert some.admit(ask, deliveries("light")) == [True]
    ask = asked(some)
    assert ask.capacity == 9
    assert some.admit(ask, deliveries("light", "heavy")) == [True, True]
    assert some.free == 2


def test_the_second_poller_learns_as_well_that_tasks_are_light() -> None:
    some = slots("light", "computes", total=100)
    ask = asked(some)
    assert (ask.capacity, ask.slots) == (2, 100)
    assert some.admit(ask, deliveries("light", "light")) == [True, True]
    assert (asked(some).capacity, some.free) == (50, 48)
    some.give_back(*deliveries("light"))
    some.give_back(*deliveries("light"))
    ask = asked(some, 1)
    assert (ask.capacity, ask.slots) == (1, 50)
    assert some.admit(ask, deliveries("light")) == [True]
    some.give_back(*deliveries("light"))
    assert asked(some, 1).capacity == 50


def test_no_light_task_passes_a_heavy_one() -> None:
    """It is handed back with what came behind it, and nothing is asked for until it fits."""
    some = slots("light", "heavy")
    assert some.admit(asked(some), deliveries(*["light"] * 5)) == [True] * 5
    assert some.admit(asked(some), deliveries("heavy", "light")) == [False, False]
    assert some.ask(0) is None
    assert some.ask(1) is None
    some.give_back(*deliveries("light"))
    ask = asked(some)
    assert (ask.capacity, ask.slots) == (1, 6)
    assert some.admit(ask, deliveries("heavy")) == [True]
    assert some.free == 0


def test_another_worker_may_have_taken_the_heavy_one() -> None:
    some = slots("light", "heavy")
    some.admit(asked(some), deliveries(*["light"] * 5))
    some.admit(asked(some), deliveries("heavy"))
    some.give_back(*deliveries("light"))
    assert some.admit(asked(some), deliveries("light")) == [True]
    assert asked(some).capacity == 5


def test_a_weight_above_all_slots_is_all_slots() -> None:
    some = slots("light", "huge")
    assert some.admit(asked(some), deliveries("huge")) == [True]
    assert some.free == 0
    some.give_back(*deliveries("huge"))
    assert some.free == 10


def test_an_unknown_task_weighs_one() -> None:
    some = slots("heavy")
    assert some.admit(asked(some), deliveries("nobody_knows_this")) == [True]
    assert some.free == 9


def test_a_process_is_waited_for_by_one_poller_while_the_other_asks_other_queues() -> None:
    some = slots("light", "computes")
    ask = asked(some)
    assert ask.capacity == 2
    assert some.admit(ask, deliveries("computes", "computes", "computes", "light")) == [True, True, False, True]
    assert some.ask(0) is None
    ask = asked(some, 1)
    assert ask.queues == ["b"]
    assert some.admit(ask, deliveries("light", queue="b")) == [True]
    assert asked(some, 1).capacity == 6
    some.give_back(*deliveries("computes"))
    assert asked(some).queues == ("a", "b")


def test_with_one_queue_only_the_end_of_a_process_is_waited_for() -> None:
    some = slots("computes", queues=("a",))
    assert some.admit(asked(some), deliveries("computes", "computes")) == [True, True]
    assert some.admit(asked(some), deliveries("computes")) == [False]
    assert some.ask(0) is None
    assert some.ask(1) is None
    some.give_back(*deliveries("computes"))
    assert some.admit(asked(some), deliveries("computes")) == [True]


def test_an_idle_worker_never_waits_for_itself() -> None:
    some = slots("heavy", "computes")
    ask = asked(some)
    assert some.admit(ask, []) == []
    assert some.free == 10
    assert some.ask(0) is not None


@pytest.mark.parametrize("processes", [1, 3, 64])
def test_never_more_processes_than_there_are(processes: int) -> None:
    some = slots("computes", queues=("a",), total=100, processes=processes)
    started = some.admit(asked(some), deliveries(*["computes"] * 100)).count(True)
    assert started == processes
