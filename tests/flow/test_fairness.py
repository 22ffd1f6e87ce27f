"""Order within a lane: priorities that nobody starves under, rounds, and weights (QUOTA-14, QUOTA-15, QUOTA-17)."""

from __future__ import annotations

from collections import Counter

from perdure.core.rounds import Rounds
from perdure.engine.ageing import EVERY
from tests.engine.drive import Drive, enqueue
from tests.flow.limited import put


async def test_a_second_key_does_not_wait_behind_a_noisy_one(drive: Drive) -> None:
    """Ten tasks of it start before twenty more of the noisy one."""
    await drive.engine.apply([enqueue(fairness_key="noisy") for _ in range(1_000)])
    await drive.poll(10)
    await drive.engine.apply([enqueue(fairness_key="quiet") for _ in range(10)])
    started: Counter[str] = Counter()
    while started["quiet"] < 10:
        started.update(task.fairness_key for task in await drive.poll(1))
    assert started["noisy"] <= 20


async def test_a_key_of_weight_three_has_three_tasks_a_round(drive: Drive) -> None:
    await put(drive, "fairness", "gold", weight=3)
    for key in ("gold", "plain"):
        await drive.engine.apply([enqueue(fairness_key=key) for _ in range(30)])
    got = [task.fairness_key for task in await drive.poll(20)]
    assert Counter(got) == {"gold": 15, "plain": 5}


def test_weights_hold_over_rounds_that_were_served() -> None:
    rounds = Rounds()
    rounds.weights = {("lane", "heavy"): 2}
    rounds.learn("lane", 0, 0)
    assert [rounds.next("lane", "heavy") for _ in range(5)] == [1, 1, 2, 2, 3]
    assert [rounds.next("lane", "light") for _ in range(3)] == [1, 2, 3]
    rounds.serve("lane", 3)
    assert [rounds.next("lane", "heavy") for _ in range(3)] == [4, 4, 5]


async def test_urgent_work_that_never_ends_leaves_a_share_to_the_rest(drive: Drive) -> None:
    """B055: every priority below gets some, in a bounded number of claims."""
    low = {await drive.enqueue(priority=priority): priority for priority in (2, 3, 4, 5)}
    await drive.engine.apply([enqueue(priority=1) for _ in range(400)])
    started: list[int] = []
    for _ in range(4 * 4 * EVERY):
        [task] = await drive.poll(1)
        await drive.enqueue(priority=1)
        if task.id in low:
            started.append(task.priority)
        if len(started) == 4:
            break
    assert sorted(started) == [2, 3, 4, 5]


async def test_without_lower_work_no_claim_goes_astray(drive: Drive) -> None:
    """And the order of one priority is that of arrival."""
    ids = [await drive.enqueue() for _ in range(40)]
    assert [(await drive.lease()).id for _ in range(40)] == ids
