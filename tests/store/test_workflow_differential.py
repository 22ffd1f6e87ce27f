"""The same random batches of workflow verbs to every store: what they answer and what is stored must be equal after
each of them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.model import SECOND, Task
from perdure.core.run import Message, Page, Run
from perdure.core.states import Kind, State
from perdure.store.base import Batch, Filter, Store
from tests.clock import START, SteppedClock
from tests.store.rows import changed, closed, leased, new_attempt, plain, task_id
from tests.store.runs import child, ids, message, new_run, new_workflow

BATCHES = 250
WORKFLOW_IDS = ("order", "ship")


class Script:
    """Draws batches that an engine may send, and knows which rows they leave."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.last = 0
        self.runs: dict[int, Run] = {}
        self.gone: list[int] = []  # runs that are closed
        self.children: dict[int, Task] = {}
        self.done: Counter[str] = Counter()

    def new_id(self) -> int:
        self.last += 1
        return self.last

    def draw(self) -> list[tuple[str, Any]]:
        """Verbs with their arguments, in the order in which a batch sends them."""
        random = self.random
        put = [self._changed(run) for run in self.runs.values() if random.random() < 0.5]
        closing = {n: self.runs.pop(n) for n in list(self.runs) if random.random() < 0.06}
        self.gone += closing
        deleted = [task for task in self.children.values() if random.random() < 0.3]
        for task in deleted:
            del self.children[int.from_bytes(task.id, "big")]
        new = [self.new_id() for _ in range(random.choice([0, 0, 1]) if self.runs else 2)]
        self.runs |= {n: new_run(n, random.choice(WORKFLOW_IDS)) for n in new}
        children = [self._child() for _ in range(random.randint(0, 3))]
        self.children |= {int.from_bytes(task.id, "big"): task for task in children}
        pages, posted = self._pages(), self._posted()
        taken = {run.id: random.randint(0, run.inbox_count) for run in self.runs.values() if random.random() < 0.3}
        return [
            ("put_runs", put),
            ("close", [closed(new_workflow(n), closed_at=START + n) for n in closing]),
            ("delete", deleted),
            ("insert", [*(new_workflow(n) for n in new), *children]),
            ("record", [new_attempt(int.from_bytes(task.id, "big"), 1) for task in children if random.random() < 0.3]),
            ("put_runs", list(self.runs.values())),
            ("append", pages),
            ("post", posted),
            ("take", taken),
        ]

    def _changed(self, run: Run) -> Run:
        random = self.random
        return replace(
            run,
            failures=random.choice([0, 0, 3]),
            sticky_session=random.choice([None, 7]),
            children=random.randint(0, 9),
            paused=random.random() < 0.2,
            memo=random.choice([None, None, b"memo"]),
        )

    def _child(self) -> Task:
        parent = self.random.choice(list(self.runs))
        kind = self.random.choice([Kind.ACTIVITY, Kind.TIMER])
        if kind is Kind.TIMER:
            return child(self.new_id(), parent, kind=kind, state=State.WAITING, place=None, wake_at=START + SECOND)
        return child(self.new_id(), parent) if self.random.random() < 0.5 else leased(child(self.new_id(), parent))

    def _pages(self) -> list[Page]:
        pages = []
        for run in self.runs.values():
            if self.random.random() < 0.6:
                count = self.random.randint(1, 4)
                pages.append(Page(run.id, run.event_count + 1, count, self.random.randbytes(9)))
                run.event_count += count
        return pages

    def _posted(self) -> list[Message]:
        posted = []
        for n, run in self.runs.items():
            for _ in range(self.random.choice([0, 0, 1, 3])):
                run.inbox_count += 1
                posted.append(message(n, run.inbox_count))
        return posted


async def send(store: Store, script: list[tuple[str, Any]], open_runs: list[bytes], parent: bytes) -> list[Any]:
    """What a batch answers to its questions, before and after it wrote."""
    async with store.batch() as batch:
        locked = await batch.lock([*open_runs, *(task.id for task in script[2][1])])
        answers: list[Any] = [sorted(locked), *await ask(batch, open_runs, parent)]
        for verb, argument in script:
            await getattr(batch, verb)(argument)
        still = [run_id for run_id in open_runs if run_id not in {task.id for task in script[1][1]}]
        answers += await ask(batch, still, parent)
    return answers


async def ask(batch: Batch, runs: list[bytes], parent: bytes) -> list[Any]:
    found, _whole = await batch.children(parent, 3)
    children = [plain(task) for task in found]
    return [await batch.runs(runs), await batch.inbox(dict.fromkeys(runs, 1)), children]


async def snapshot(store: Store, everything: list[bytes], after: int) -> dict[str, Any]:
    found: dict[str, Any] = {f"row {key.hex()}": plain(task) for key, task in (await store.read(everything)).items()}
    found["runs"] = await store.run_rows(everything)
    found["histories"] = await store.histories(dict.fromkeys(everything, after), 4)
    found["attempts"] = await store.attempts(everything)
    found["next alarm"] = await store.next_alarm()
    for name in WORKFLOW_IDS:
        found[name] = ids(await store.find(Filter(namespace="default", limit=50, workflow_id=name)))
    found["workflows"] = ids(await store.find(Filter(namespace="default", limit=50, kind=Kind.WORKFLOW)))
    for key in everything:
        children, messages = await store.pending(key, 5)
        found[f"pending {key.hex()}"] = ([changed(task, rowid=0) for task in children], messages)
    return found


@pytest.mark.timeout(300)
async def test_all_stores_are_equal(every_store: dict[str, Store], clock: SteppedClock) -> None:
    script = Script(Random(1))
    for number in range(BATCHES):
        open_runs = [task_id(n) for n in script.runs]
        parent = script.random.choice(open_runs or [task_id(99_999)])
        drawn = script.draw()
        script.done.update(verb for verb, argument in drawn if argument)
        before = START + script.gone[-5] if len(script.gone) > 8 and number % 5 == 0 else 0
        answers, snapshots = {}, {}
        everything = [task_id(n) for n in range(max(1, script.last - 60), script.last + 1)]
        after = script.random.randint(0, 12)
        for kind, store in every_store.items():
            answers[kind] = await send(store, drawn, open_runs, parent)
            async with store.batch() as batch:
                answers[kind].append(await batch.trim_closed(before, 100))
            snapshots[kind] = await snapshot(store, everything, after)
        script.done["trim"] += answers["memory"][-1]
        for kind in every_store:
            assert answers[kind] == answers["memory"], f"batch {number}, {kind}"
            for row, value in snapshots["memory"].items():
                assert snapshots[kind].get(row) == value, f"batch {number}, {kind}: {row}"
            assert snapshots[kind].keys() == snapshots["memory"].keys(), f"batch {number}, {kind}"
    verbs = {"put_runs", "close", "delete", "insert", "record", "append", "post", "take", "trim"}
    assert {verb for verb, times in script.done.items() if times} == verbs
