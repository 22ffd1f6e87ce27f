"""What must hold of workflow runs after every commit. As in invariants.py nothing here uses the code that it judges."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.core import events as e
from perdure.core import pages
from perdure.core.events import AnyAttributes, Event
from perdure.core.ids import parse
from perdure.core.model import Task
from perdure.core.run import Message, MessageKind, Run
from perdure.core.states import Kind, State
from perdure.core.workflow_messages import WorkflowView
from tests.sim.flows import CRONS
from tests.sim.pasts import BY_CODE, Past, ended_by, value_of
from tests.sim.reading import short, show
from tests.sim.tables import Change

if TYPE_CHECKING:
    from tests.sim.invariants import Checker

KINDS = {Kind.ACTIVITY: "activity", Kind.TIMER: "timer", Kind.WORKFLOW: "child", Kind.MESSAGE: "message",
         Kind.GROUP: "group"}  # fmt: skip
TERMINATE, ABANDON, REQUEST_CANCEL = 1, 2, 3
"""Parent close policies, as stored."""
CLOSED = "its parent closed"
"""Why a child is terminated or asked to cancel then."""
SWEPT = 10.0
"""Seconds within which what a closed run leaves behind is closed, when all is well."""


class Runs:
    """All runs, as committed."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.rows: dict[bytes, Run] = {}
        self.pasts: dict[bytes, Past] = defaultdict(lambda: Past(self._fail))
        self.inboxes: dict[bytes, dict[int, Message]] = defaultdict(dict)
        self._children: dict[bytes, set[bytes]] = defaultdict(set)  #: open rows, by parent
        self._open: dict[str, set[bytes]] = defaultdict(set)  #: by workflow id
        self._texts: dict[str, bytes] = {}  #: signals, and the run that has or had them last
        self._doubtful: set[str] = set()  #: workflow ids with a reset: their signals may be in two runs
        self._executed: dict[tuple[str, int], int] = {}  #: steps and attempts -> when
        self._orphaned: dict[bytes, float] = {}  #: since when a row's parent is closed

    def _fail(self, rule: str, detail: str) -> None:
        self._checker.fail(rule, detail)

    # --------------------------------------------------------------------------------------------------------- commits
    def read(self, changes: list[Change]) -> None:
        """The columns of runs, before anything else."""
        for change in changes:
            if change.after is None:
                self.rows.pop(change.key, None)
            else:
                self._run(change.before, change.after)

    def committed(self, changes: dict[str, list[Change]]) -> None:
        touched = {change.key: None for change in changes["runs"]}
        for change in sorted(changes["history"], key=lambda change: change.key):
            touched[change.key[0]] = None
            self._page(change)
        for change in changes["tasks"]:
            self._index(change, touched)
        self._messages(changes["inbox"], touched)
        for change in changes["runs"]:
            if change.before is None and change.after is not None:
                there = {text for message in self.inboxes[change.key].values() for text in texts_of(message)}
                if lost := self._unasked(change.after) - there:
                    self._fail("signals", f"{min(lost)} was asked for by nobody, and {short(change.key)} has it not")
                self._begins(change.after)
        for run_id in touched:
            if (run := self.rows.get(run_id)) is not None:
                self._agree(run_id, run)

    def _run(self, before: Run | None, run: Run) -> None:
        if before is None and run.reset_run_id is not None:
            self._doubtful.add(run.workflow_id)
        if before is not None and run.inbox_taken < before.inbox_taken and run.inbox_count:
            self._fail("inbox", f"{short(run.id)} gave back messages: {before} -> {run}")
        if before is not None and (run.workflow_id, run.cron) != (before.workflow_id, before.cron):
            self._fail("chains", f"{short(run.id)} is another one: {before} -> {run}")
        self.rows[run.id] = run

    def _begins(self, run: Run) -> None:
        """What cron repeats begins when its expression says, and not before."""
        begun: Any = self.pasts[run.id].events[0].attributes
        task = self._checker.tasks.get(run.id)
        if run.cron is None or task is None or run.reset_run_id is not None or begun.initiator not in ("", "cron"):
            return
        period, at = CRONS[run.cron] * 1_000_000, task.ready_at or 0
        if at % period or not 0 < at - task.created_at <= period:
            self._fail("cron", f"{run.cron!r} is to begin at {at}: {show(task)}")

    def _page(self, change: Change) -> None:
        run_id, first = change.key
        if self._checker.groups.is_group(run_id):
            return
        if change.before is not None:
            if change.after is not None or run_id in self._checker.tasks or run_id in self._checker.closed:
                self._fail("history", f"a page of {short(run_id)} changed")
            return
        past = self.pasts[run_id]
        grown = len(past.events)
        past.grow(first, pages.unpack(change.after.data))
        for event in past.events[grown:]:
            self._checker.count(f"event {type(event.attributes).__name__}")
            self._obeys(run_id, event.attributes)
        if past.closed is not None:
            self._closed(run_id, past)

    def _obeys(self, run_id: bytes, attributes: Any) -> None:
        """A child that its closed parent ends, or asks to end, is one that this was said of."""
        policy = self.rows[run_id].parent_close_policy
        match attributes:
            case e.WorkflowExecutionTerminated(reason=reason) if reason == CLOSED and policy != TERMINATE:
                self._fail("children", f"{short(run_id)} was terminated with its parent, by policy {policy}")
            case e.WorkflowExecutionCancelRequested(cause=cause) if cause == CLOSED and policy != REQUEST_CANCEL:
                self._fail("children", f"{short(run_id)} was canceled with its parent, by policy {policy}")

    def _closed(self, run_id: bytes, past: Past) -> None:
        """What the code showed at the end is what the history says that it saw; what is to follow does."""
        run, following = self.rows[run_id], getattr(past.closed, "new_run_id", None)
        if following and following not in self.rows:
            self._fail("chains", f"{short(run_id)} is followed by {short(following)}, which is not there")
        ended = isinstance(past.closed, (e.WorkflowExecutionCompleted, e.WorkflowExecutionFailed))
        asked = any(isinstance(event.attributes, e.WorkflowExecutionCancelRequested) for event in past.events)
        if ended and not asked and not following and run.cron is not None and run.chain_deadline is None:
            self._fail("cron", f"{short(run_id)} is followed by none, and {run.cron!r} goes on")
        match past.closed:
            case e.WorkflowExecutionCompleted(result=result):
                self.shown_at_end(run_id, value_of(result), whole=True)
            case e.WorkflowExecutionContinuedAsNew(input=given):
                self.shown_at_end(run_id, value_of(given), whole=True)

    def shown_at_end(self, run_id: bytes, shown: dict[str, Any], *, whole: bool) -> None:
        past = self.pasts[run_id]
        expected = past.input["seen"] + past.signals
        if shown["n"] != past.input["n"]:
            self._fail("signals", f"{short(run_id)} shows what another run is")
        if shown["seen"] != (expected if whole else expected[: len(shown["seen"])]):
            self._fail("signals", f"{short(run_id)} saw {shown['seen']}, its history has {expected}")
        waited = shown.get("waited", [])
        if len(set(waited)) != len(waited) or not set(waited) <= set(past.waited):
            self._fail("signals", f"{short(run_id)} was given {waited}, its history has {past.waited}")

    # ------------------------------------------------------------------------------------------------ rows and children
    def _index(self, change: Change, touched: dict[bytes, None]) -> None:
        before: Task | None = change.before
        task: Task | None = change.after
        known = task or before
        assert known is not None
        if known.kind == Kind.WORKFLOW:
            touched[known.id] = None
            workflow_id = self.rows[known.id].workflow_id if known.id in self.rows else ""
            (self._open[workflow_id].discard if task is None else self._open[workflow_id].add)(known.id)
        if (parent := known.parent_run_id) is None:
            return
        touched[parent] = None
        if before is not None and task is not None and before.parent_run_id != parent:
            self._fail("children", f"another parent: {show(before)} -> {show(task)}")
        (self._children[parent].discard if task is None else self._children[parent].add)(known.id)

    def _agree(self, run_id: bytes, run: Run) -> None:
        """All that is stored about a run says the same."""
        past = self.pasts[run_id]
        task = self._checker.tasks.get(run_id)
        if run.event_count != len(past.events):
            self._fail("history", f"{short(run_id)} counts {run.event_count} events and has {len(past.events)}")
        inbox = self.inboxes[run_id]
        if task is None:
            if inbox:
                self._fail("inbox", f"a closed run keeps messages: {short(run_id)}")
            if past.closed is None:
                self._fail("history", f"a closed run has no last event: {short(run_id)}")
            return
        if past.closed is not None:
            self._fail("history", f"an open run has a last event: {show(task)} {past.closed!r}")
        if sorted(inbox) != [*range(run.inbox_taken + 1, run.inbox_count + 1)]:
            self._fail("inbox", f"{run.inbox_taken}..{run.inbox_count} are {sorted(inbox)}: {show(task)}")
        if task.state == State.WAITING and inbox:
            self._fail("inbox", f"messages, and no turn is due: {show(task)}")
        if run.children != len(self._children[run_id]):
            self._fail("children", f"{run.children} counted, {len(self._children[run_id])} there: {show(task)}")
        self._agree_with_children(task, past)
        self._names(run, task)

    def _names(self, run: Run, task: Task) -> None:
        """One open run a workflow id, and it has the key."""
        if len(self._open[run.workflow_id]) > 1:
            self._fail("workflow ids", f"{len(self._open[run.workflow_id])} runs of {run.workflow_id} are open")
        key = self._checker.keys.get((task.namespace, "", "workflow", run.workflow_id))
        if key is None or key.task_id != run.id:
            self._fail("workflow ids", f"{run.workflow_id} is the name of {key}, and not of {show(task)}")

    def _agree_with_children(self, parent: Task, past: Past) -> None:
        waiting: set[int] = set()
        for child_id in self._children[parent.id]:
            child = self._checker.tasks[child_id]
            kind, began = KINDS.get(child.kind), child.parent_event_id or 0
            if kind is None or (kind == "group" and self._checker.groups.is_told(child)):
                continue  # the row of a group stays until its run has closed
            waiting.add(began)
            if past.began.get(began) != kind:
                self._fail("children", f"{show(child)} was begun by event {began}, {past.began.get(began)}")
            if began in past.canceled or began in past.ended:
                self._fail("children", f"it has ended, and is open: {show(child)}")
        told = {
            began
            for message in self.inboxes[parent.id].values()
            for news in news_of(message)
            if (began := ended_by(news)) is not None
        }
        if lost := past.open.keys() - waiting - told:
            self._fail("children", f"nobody tells of the end of event {min(lost)}: {show(parent)}")
        if twice := told & past.ended:
            self._fail("children", f"the end of event {min(twice)} is told twice: {show(parent)}")

    # -------------------------------------------------------------------------------------------------------- messages
    def _unasked(self, run: Run) -> set[str]:
        """Signals that the run before has and its code never asked for, as it continued as new: they go along."""
        before = self.pasts.get(run.previous_run_id or b"")
        if before is None or run.reset_run_id or not isinstance(before.closed, e.WorkflowExecutionContinuedAsNew):
            return set()
        return set(before.waited) - set(value_of(before.closed.input)["waited"])

    def _messages(self, changes: list[Change], touched: dict[bytes, None]) -> None:
        added = [change for change in changes if change.after is not None]
        posted = {text for change in added for text in texts_of(change.after)}
        for change in changes:
            if change.after is None:
                self._gone(change.before, posted)
                self.inboxes[change.key[0]].pop(change.key[1], None)
        for change in added:
            touched[change.key[0]] = None
            if change.before is not None:
                self._fail("inbox", f"a message changed: {change}")
            self.inboxes[change.key[0]][change.key[1]] = change.after
        left = {text for change in changes if change.after is None for text in texts_of(change.before)}
        for change in added:
            for text in texts_of(change.after):
                run = self.rows[change.key[0]]
                again = text in left or run.workflow_id in self._doubtful or text in self._unasked(run)
                if text in self._texts and not again:
                    self._fail("signals", f"signal {text} came again, to {short(change.key[0])}")
                self._texts[text] = change.key[0]

    def _gone(self, message: Message, posted: set[str]) -> None:
        """A message leaves the inbox: as events, into that of the next run, or with a run that others have closed."""
        past = self.pasts[message.run_id]
        for text in texts_of(message):
            if text in past.signals or text in past.waited or text in posted:
                continue
            if past.closed is None or isinstance(past.closed, BY_CODE) or self._canceled_itself(past):
                self._fail("signals", f"signal {text} was lost by {short(message.run_id)}")

    def _canceled_itself(self, past: Past) -> bool:
        return isinstance(past.closed, e.WorkflowExecutionCanceled) and past.closed.completed_event_id > 0

    # ------------------------------------------------------------------------------------------------------- questions
    def stored(self, text: str, run_id: bytes) -> None:
        """A server says that a run has this signal; it may have been terminated in the same commit."""
        past = self.pasts[run_id]
        if past.closed is not None and not isinstance(past.closed, BY_CODE):
            self._texts.setdefault(text, run_id)
        self.acknowledged(text)

    def acknowledged(self, text: str) -> None:
        """A client was told that its signal is kept."""
        if text not in self._texts:
            self._fail("signals", f"signal {text} was acknowledged and is not there")

    def begun(self, run_id: bytes) -> None:
        """A client was told that a run exists."""
        if not self._checker.exists(run_id):
            self._fail("committed", f"run {short(run_id)} was acknowledged and does not exist")

    def shown(self, shown: dict[str, Any]) -> None:
        """A query was answered: by a run whose state was like this at some time."""
        found = [run_id for run_id, past in self.pasts.items() if past.input["n"] == shown["n"]]
        if not any(shown["seen"] == (self.pasts[i].input["seen"] + self.pasts[i].signals)[: len(shown["seen"])]
                   for i in found):  # fmt: skip
            self._fail("queries", f"no run ever was like {shown}")

    def looked(self, view: WorkflowView) -> None:
        """A client was shown a run: as it was at some time, and why it does not go on."""
        run_id, state = parse(view.run_id), State[view.state]
        past = self.pasts[run_id]
        if state not in [before for _, before in self._checker.history[run_id]]:
            self._fail("committed", f"{short(run_id)} is shown as {view.state}, which it never was")
        if view.history_length > len(past.events):
            self._fail("committed", f"{short(run_id)} is shown with {view.history_length} of {len(past.events)} events")
        began = [(one.scheduled_event_id, "activity") for one in view.pending_activities]
        began += [(one.started_event_id, "timer") for one in view.pending_timers]
        began += [(one.initiated_event_id, "child") for one in view.pending_children]
        for event_id, kind in began:
            if past.began.get(event_id) != kind:
                self._fail("committed", f"{short(run_id)} is shown with a {kind} of event {event_id}")
        if (view.closed_at is None) != bool(view.waiting_for):
            self._fail("reasons", f"{short(run_id)}, {view.state}, waits for {view.waiting_for!r}")

    def read_back(self, run_id: bytes, events: list[Event]) -> None:
        """A client was shown a history."""
        known = self.pasts[run_id].events
        if events != known[: len(events)]:
            self._fail("history", f"{len(events)} events of {short(run_id)} are shown that are not its first")

    def told(self, workflow_id: str, states: tuple[State, ...], value: Any) -> None:
        """A client was told how a workflow ended: some run of it did."""
        for run_id, run in self.rows.items():
            closed = self._checker.closed.get(run_id)
            if run.workflow_id == workflow_id and closed is not None and closed.state in states:
                end: Any = self.pasts[run_id].closed
                if value is None or value == value_of(end.result):
                    return
        if self._checker.world.plan.retention > 1_000:
            self._fail("answers", f"no run of {workflow_id} ended as {states}, {value}")

    def paused(self) -> list[str]:
        return sorted({run.workflow_id for run_id, run in self.rows.items() if run.paused and self._is_open(run_id)})

    def repeated(self) -> list[str]:
        """Workflow ids of open runs that never end by themselves."""
        return sorted({run.workflow_id for run_id, run in self.rows.items() if run.cron and self._is_open(run_id)})

    def is_paused(self, run_id: bytes) -> bool:
        run = self.rows.get(run_id)
        return run is not None and run.paused

    def _is_open(self, run_id: bytes) -> bool:
        return run_id in self._checker.tasks

    def look_for_orphans(self, now: float) -> None:
        """A closed run leaves nothing behind but what may go on."""
        for task in self._checker.tasks.values():
            parent = task.parent_run_id
            run = self.rows.get(task.id)
            free = run is not None and (
                run.parent_close_policy == ABANDON
                or (run.parent_close_policy == REQUEST_CANCEL and task.cancel_requested_at is not None)
            )
            if parent is None or free or parent in self._checker.tasks or task.kind == Kind.MESSAGE:
                self._orphaned.pop(task.id, None)
            elif now - self._orphaned.setdefault(task.id, now) > SWEPT:
                self._fail("children", f"its run has closed long since: {show(task)}")

    # ----------------------------------------------------------------------------------------------------------- steps
    def executed(self, name: str, attempt: int) -> None:
        """A worker runs a step: `name` is the run and the step."""
        run_text, _, number = name.rpartition("/")
        run_id, step = parse(run_text), int(number)
        past = self.pasts[run_id]
        if past.steps.get(step, 0) < attempt:
            self._fail("steps", f"attempt {attempt} of {short(run_id)}/{step} runs, and was not claimed")
        if (name, attempt) in self._executed:
            self._fail("steps", f"attempt {attempt} of {short(run_id)}/{step} runs twice")
        if step in past.done_steps and past.steps[step] == attempt:
            self._fail("steps", f"{short(run_id)}/{step} runs, and has ended")
        self._executed[name, attempt] = len(past.events)
        self._checker.counts["steps"] += 1

    def events_of(self, run_id: bytes) -> list[Event]:
        return self.pasts[run_id].events


def news_of(message: Message) -> list[Any]:
    """The events that a message becomes."""
    if message.kind == MessageKind.UPDATE:
        return []
    found: list[Any] = msgspec.msgpack.decode(message.body, type=list[AnyAttributes])
    return found


def texts_of(message: Message) -> list[str]:
    """The signals that it carries."""
    return [value_of(news.input) for news in news_of(message) if isinstance(news, e.WorkflowExecutionSignaled)]
