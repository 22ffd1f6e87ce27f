"""What must hold of groups after every commit (STEP-18 to STEP-28): every call is made once and ends once, no more are
open than the window allows, the results are those of the calls, and the run hears of the group once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core import pages
from perdure.core.events import GroupCompleted, GroupFailed
from perdure.core.group_events import CallResult
from perdure.core.groups import Group
from perdure.core.model import Payloads, Task
from perdure.core.run import Message, Page
from perdure.core.states import Kind
from tests.sim.pasts import value_of
from tests.sim.reading import show
from tests.sim.run_rules import news_of
from tests.sim.tables import Change

if TYPE_CHECKING:
    from tests.sim.invariants import Checker


class Calls:
    """What is known of one group."""

    def __init__(self, row: Task) -> None:
        group = group_in(row)
        self.row = row
        self.count = group.count
        self.inputs: list[Payloads] = []
        self.made: dict[int, Task] = {}  #: by index
        self.open: set[int] = set()
        self.ended = bits_of(group)  #: all of them, where a reset has copied a group that had completed
        self.copied = len(self.ended)
        self.results: dict[int, CallResult] = {}
        self.heard = False  #: its run was told


class Groups:
    """All groups, as committed."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._known: dict[bytes, Calls] = {}
        self._by_event: dict[tuple[bytes, int], bytes] = {}

    def is_group(self, row_id: bytes) -> bool:
        return row_id in self._known

    def is_told(self, row: Task) -> bool:
        """Whether its run was sent a message, or has asked for none."""
        return group_in(row).told

    def results(self, row_id: bytes) -> list[CallResult]:
        """Those of a group, in the order in which they came."""
        return [*self._known[row_id].results.values()]

    def committed(self, changes: dict[str, list[Change]]) -> None:
        touched: dict[bytes, None] = {}
        for change in changes["tasks"]:
            row: Task = change.after or change.before
            if row.kind == Kind.GROUP:
                touched[row.id] = None
                self._row(change)
        for change in changes["tasks"]:
            parent = (change.after or change.before).parent_run_id
            if parent in self._known and (change.after or change.before).kind == Kind.ACTIVITY:
                touched[parent] = None
                self._call(self._known[parent], change)
        for change in sorted(changes["history"], key=lambda change: change.key):
            if change.key[0] in self._known and change.after is not None:
                self._page(self._known[change.key[0]], change.after)
        for group_id in touched:
            self._agrees(self._known[group_id])
        for change in changes["inbox"]:
            if change.after is not None:
                self._hears(change.after)

    def _fail(self, detail: str, calls: Calls) -> None:
        self._checker.fail("groups", f"{detail}: {show(calls.row)} {group_in(calls.row)}")

    def _row(self, change: Change) -> None:
        before: Task | None = change.before
        after: Task | None = change.after
        if before is None and after is not None:
            self._known[after.id] = Calls(after)
            self._by_event[after.parent_run_id or b"", after.parent_event_id or 0] = after.id
            self._checker.count("group")
        elif after is not None:
            self._known[after.id].row = after

    def _call(self, calls: Calls, change: Change) -> None:
        row: Task = change.after or change.before
        index = row.parent_event_id or 0
        if change.before is None:
            if index in calls.made or not index < calls.count:
                self._fail(f"call {index} is made again, or is none of it: {show(row)}", calls)
            if row.payload is None or msgspec.msgpack.decode(row.payload, type=Payloads) != calls.inputs[index]:
                self._fail(f"call {index} has another input: {show(row)}", calls)
            calls.made[index] = row
            calls.open.add(index)
        elif change.after is None:
            calls.open.discard(index)
            calls.ended.add(index)
            self._checker.count("call")

    def _page(self, calls: Calls, page: Page) -> None:
        if page.first <= calls.count:
            calls.inputs += msgspec.msgpack.decode(pages.plain(page.data), type=list[Payloads])
            return
        results = pages.unpack_results(page.data)
        if page.first != calls.count + len(calls.results) + 1 or page.count != len(results):
            self._fail(f"a page of {page.count} results, from {page.first} on, follows {len(calls.results)}", calls)
        for result in results:
            if result.index in calls.results or result.index not in calls.ended:
                self._fail(f"call {result.index} has a second result, or has not ended", calls)
            calls.results[result.index] = result
            self._is_of(calls, result)

    def _is_of(self, calls: Calls, result: CallResult) -> None:
        """A result is what the last lease of its call gave."""
        made = calls.made.get(result.index)
        if made is None or result.status != "completed":
            return
        spec: Any = self._checker.world.spec_of(made)
        value: Any = value_of(result.result)
        if (value["n"], value["lease"]) != (spec["n"], self._checker.numbers[made.id]):
            self._fail(f"call {result.index} of {spec['n']} has the result {value}", calls)

    def _agrees(self, calls: Calls) -> None:
        """The row says what has happened, and has an alarm if something is to be done."""
        group, row = group_in(calls.row), calls.row
        if row.id not in self._checker.tasks:
            if calls.open:
                self._fail(f"it is closed, and calls {sorted(calls.open)} are open", calls)
            return
        if len(calls.inputs) != calls.count:
            self._fail(f"{len(calls.inputs)} inputs are kept", calls)
        if bits_of(group) != calls.ended or group.done != len(calls.ended):
            self._fail(f"calls {sorted(calls.ended)} have ended", calls)
        if group.inserted != max(len(calls.made), calls.copied):
            self._fail(f"{len(calls.made)} calls were made", calls)
        if group.window and len(calls.open) > group.window:
            self._fail(f"{len(calls.open)} calls are open", calls)
        complete = group.done == group.count
        has_room = group.inserted < group.count and (not group.window or len(calls.open) < group.window)
        waits_for_it = not group.told and (complete or group.fatal is not None)
        if row.ready_at is None and (group.over or waits_for_it or (has_room and not group.canceling)):
            self._fail("nothing will happen to it", calls)

    def _hears(self, message: Message) -> None:
        """A message tells its run of a group: once, that it has completed, and then all results are there, or that it
        has failed."""
        for news in news_of(message):
            if not isinstance(news, (GroupCompleted, GroupFailed)):
                continue
            calls = self._known[self._by_event[message.run_id, news.started_event_id]]
            if calls.heard:
                self._fail("its run is told twice", calls)
            calls.heard = True
            failed = sum(result.status != "completed" for result in calls.results.values())
            if isinstance(news, GroupCompleted) and (len(calls.results), failed) != (calls.count, news.failed):
                self._fail(f"its run is told {news}; of {len(calls.results)} results {failed} are failures", calls)


def group_in(row: Task) -> Group:
    assert row.checkpoint is not None
    return msgspec.msgpack.decode(row.checkpoint, type=Group)


def bits_of(group: Group) -> set[int]:
    """The calls that its bits say have ended."""
    return {index for index in range(group.count) if group.ended[index // 8] >> index % 8 & 1}
