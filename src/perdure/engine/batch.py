"""One batch, from its commands to its writes; DESIGN section 3 names the phases.

    known    ids that callers made and that are taken, when an earlier try met one
    keys     reserve all keys, before any row is locked; read who holds those that were lost
    beats    heartbeats, in one fenced statement of their own
    succeed  jobs that simply succeeded, in one fenced statement too
    advance  appends of steps, in another one
    resolve  workflow ids that commands name
    lock     the rows that commands name, skipping those held elsewhere, which go to the next batch
    read     what became of rows that were not there
    claim    for all waiting polls
    hang     parents, runs and inboxes, in statements sent after the locks were granted (relatives.py, workflows.py)
    decide   one command after another, with core/; then the alarms; then hand out what is ready
    flush    deletes, updates, inserts

Nothing is answered here: `answers`, and the tasks in `polls`, are given out by the engine once the commit is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any

from perdure.core import bulk, decide, turns
from perdure.core import commands as c
from perdure.core.effects import Effect
from perdure.core.errors import LeaseLost, NotFound, PerdureError
from perdure.core.ids import Mint
from perdure.core.model import Key, Task
from perdure.core.rounds import Rounds
from perdure.core.states import Kind, State, is_closed
from perdure.engine import exchange, flow_changes, sessions
from perdure.engine.advances import advance_all, are_advances
from perdure.engine.ageing import Heads
from perdure.engine.beats import beat
from perdure.engine.chores import Chores, guard
from perdure.engine.debounce import displace
from perdure.engine.dispatch import Parked, assign, demands
from perdure.engine.flow import Flow, Known
from perdure.engine.gather import Item
from perdure.engine.intake import Intake
from perdure.engine.ledger import Ledger
from perdure.engine.outbox import publish
from perdure.engine.relatives import Relatives
from perdure.engine.starts import Starts
from perdure.engine.streams import write_streams
from perdure.engine.workflows import Items, Workflows
from perdure.store.base import Batch as Rows
from perdure.store.base import Doubled, Store

Named = c.Complete | c.Cancel | c.Retry | c.NoteBulk | c.Append | c.Addressed | c.Enqueue | c.ScheduleCommand
"""Commands about rows that they name."""
_ADDRESSED = (c.Tell, c.Terminate, c.Pause, c.Reset)
_CHORES = (c.Ring, c.Reap, c.Trim, c.TrimOutbox, c.Erase)


class Batch:
    """One batch and its results. `run` may be called once; a batch that was not committed is made anew."""

    def __init__(
        self,
        items: Sequence[Item],
        polls: Sequence[Parked],
        mint: Mint,
        rounds: Rounds,
        clock: Callable[[], int],
        *,
        watched: Container[bytes] = (),
        timed: Container[str] = (),
        doubled: bool = False,
        patient: bool = False,
        recorded: frozenset[str] = frozenset(),
        store: Store,
        max_events: int,
        known: Known,
        heads: Heads,
    ) -> None:
        self.items = items
        self.polls = polls
        self.answers: list[tuple[Item, c.Outcome]] = []
        self.deferred: list[Item] = []
        self.ledger = Ledger()
        self.flow = Flow(self.ledger, known)
        self.ready: list[Task] = []  #: tasks that this batch made ready
        self.heat: set[str] = set()  #: lanes to look at after the commit
        self.under_full: set[str] = set()
        self.begun: list[Task] = []  #: actions on many jobs that this server drives from here on
        self.published: set[str] = set()  #: namespaces of which there are new events
        self.streamed: set[bytes] = set()  #: tasks whose streams have grown
        self.succeeded: set[bytes] = set()  #: tasks closed without a look at their rows
        self._max_events = max_events
        self._heads = heads
        self._displacing: dict[Item, Key] = {}  #: enqueues that take the place of those that hold their keys
        self._mint = mint
        self._rounds = rounds
        self._clock = clock
        self._now = 0
        self._claimed: dict[str, list[Task]] = {}
        self._fresh: list[Parked] = []  #: polls that did not get leases of an earlier answer again
        self.timed: str | None = None  #: a lane in which a task with time-outs was met by an exchange
        self._exchange = False  #: all of this is one
        self._relatives = Relatives(self.ledger, mint, rounds)
        self._workflows = Workflows(self.ledger, self._relatives, mint, rounds, store, max_events)
        self._starts = Starts()
        self._doubled = doubled  #: some of the ids that callers made are taken
        self._watched = watched  #: somebody waits here for these tasks to close
        self._recorded = recorded  #: namespaces whose events are recorded
        self._patient = patient  #: wait for the lock of the one row that this batch names
        for item in items:
            if isinstance(item.command, c.Enqueue):
                self._number(item.command)
        if not patient and exchange.fits(items, polls, self._is_simple):
            [lane] = polls[0].request.lanes
            self._exchange = lane not in timed and not heads.is_turn(lane) and not self.flow.touches([lane])

    @property
    def single(self) -> bool:
        """Whether all this batch sends is one writing statement."""
        if self._exchange:
            return not self._recorded
        if self.polls or not self.items or self._patient:
            return False
        match self.items[0].command:
            case c.Enqueue():
                return all(type(i.command) is c.Enqueue and not (i.command.key or i.command.minted) for i in self.items)
            case c.Heartbeat():
                return all(isinstance(i.command, c.Heartbeat) for i in self.items)
            case c.Complete() if not self._recorded:
                simple = (i.command for i in self.items if self._is_simple(i))
                return len({done.lease.task_id for done in simple if isinstance(done, c.Complete)}) == len(self.items)
            case c.Append():
                return are_advances(self.items, self._max_events)
            case _:
                return False

    def nudges(self) -> list[tuple[int, bytes]]:
        """(Worker process, task) of leases whose tasks were asked to cancel, or are runs that got a message."""
        canceled = (o.task_id for _, o in self.answers if isinstance(o, c.Changed) and o.cancel_requested)
        leased = [self.ledger.rows[task_id] for task_id in canceled if task_id in self.ledger.rows]
        leased += self._relatives.canceled
        leased += self.ledger.posted_to()
        return [(task.session, task.id) for task in leased if task.session is not None]

    async def run(self, rows: Rows) -> None:
        """All phases, within the transaction `rows`."""
        if self._exchange:
            await self._run_exchange(rows)
        else:
            await self._run_phases(rows)
        if self._recorded:
            self.published = await publish(rows, self.ledger, self.succeeded, self.flow.moves, self._recorded)

    async def _run_phases(self, rows: Rows) -> None:
        work: dict[type, list[tuple[Item, Any]]] = {}
        for item in self.items:
            work.setdefault(type(item.command), []).append((item, item.command))
        enqueues = await self._let_in(rows, work.get(c.Enqueue, []))
        scheduling = await self._workflows.schedules.resolve(rows, work)
        if beats := work.get(c.Heartbeat):
            answers, deferred = await beat(rows, beats, patient=self._patient)
            self.answers += answers
            self.deferred += deferred
        if writes := work.get(c.WriteStream):
            answers, deferred, self.streamed = await write_streams(rows, writes, patient=self._patient)
            self.answers += answers
            self.deferred += deferred
        named = [*await self._succeed(rows, work.get(c.Complete, [])), *work.get(c.Cancel, []), *work.get(c.Retry, [])]
        workflows = self._workflows
        named += work.get(c.NoteBulk, [])
        if appends := work.get(c.Append):
            named += await self._advance(rows, appends)
        if addressed := [pair for kind in _ADDRESSED for pair in work.get(kind, ())]:
            named += await workflows.resolve(rows, addressed)
        named += [*self._starts.onto, *scheduling]
        workflows.target({item: key.task_id for item, key in self._displacing.items()})
        named += [(item, item.command) for item in self._displacing]
        main, gone = await self._lock(rows, named)
        self._put_off(named, await workflows.followed(rows, gone))
        await workflows.recall(rows, named, gone)
        await sessions.serve(self, rows, [*work.get(c.OpenSession, []), *work.get(c.CloseSession, [])])
        asked = await flow_changes.serve(self, rows, work)
        await self._claim(rows)
        chores = Chores(self.ledger, self._relatives, workflows, self._mint, self._rounds)
        await chores.read(rows, [pair for kind in _CHORES for pair in work.get(kind, ())])
        await self._hang(rows, named, main, chores, enqueues)
        self._now = rows.now
        await self._learn(rows, workflows.lanes_of(named))
        for item, command in named:
            self._answer(item, self._decide, item, command, gone.get(main[item]))
        chores.decide(self._now)
        self.deferred += workflows.schedules.create(self._now)
        self.begun = chores.begun
        await self.flow.open(rows, self._claimed, enqueues, self._fresh, self.under_full, asked)
        self._hand_out(self._claimed)
        for item, command in enqueues:
            self._answer(item, self._enqueue, item, command)
        for item, command in self._starts.joining:
            self._answer(item, workflows.start_onto, item, command, None, self._now)
        self.answers += [*workflows.answers, *workflows.schedules.answers, *chores.answers]
        self.answers += [(item, c.Did(self.flow.pulled)) for item, _ in work.get(c.Pull, ())]
        self._match()
        await self._flush(rows, [i for _, command in enqueues if command.minted and (i := command.task_id)])

    async def _hang(self, rows: Rows, named: Items, ids_of: dict[Item, bytes], chores: Chores, enqueues: Items) -> None:
        """What hangs on the rows that are locked by now: parents, runs, inboxes, request ids. Commands whose rows are
        not all to be had are deferred and removed from `named`; such alarms ring again."""
        rows_of, job, asking = self.ledger.rows, Kind.JOB, [*self._starts.joining, *self._starts.updating]
        if not asking and all(task.kind is job for task in rows_of.values()):
            return
        workflows = self._workflows
        main = {item: ids_of[item] for item, _ in named}
        await chores.keep(partial(workflows.errands.read, rows))
        await chores.keep(partial(workflows.groups.read, rows))
        await chores.keep(partial(workflows.schedules.due, rows))
        children = [
            rows_of[i] for item, i in main.items() if i in rows_of and turns.may_close(item.command, rows_of[i])
        ]
        held = await self._relatives.lock_parents(rows, [*children, *chores.rows])
        if held:
            self._put_off(named, [item for item, task_id in main.items() if task_id in held])
            chores.drop(held)
        in_turn = {i for item, i in main.items() if isinstance(item.command, (c.Append, c.Complete, c.Reset))}
        in_turn.update(task.id for tasks in self._claimed.values() for task in tasks)
        in_turn.update(task.id for parked in self.polls for task in parked.tasks)
        await workflows.read(rows, in_turn)
        starting = {command.task_id for _, command in enqueues}
        await workflows.reservations.reserve(rows, [*named, *asking], starting)
        await workflows.schedules.reserve(rows, named, starting)
        await workflows.read_first(named)
        for parked in self.polls:
            for task in parked.tasks:
                if task.kind == Kind.WORKFLOW:
                    parked.request.turns[task.id] = workflows.prepared(task)

    def _put_off(self, named: Items, items: list[Item]) -> None:
        """These go to the next batch."""
        self.deferred.extend(items)
        later = set(items)
        named[:] = [pair for pair in named if pair[0] not in later]

    async def _run_exchange(self, rows: Rows) -> None:
        [parked] = self.polls
        [lane] = parked.request.lanes
        done = exchange.Exchange()
        completions = [item.command for item in self.items if isinstance(item.command, c.Complete)]
        begun = _time()
        await done.run(rows, completions, parked, self._heads.after(lane), self._mint)
        took = _time() - begun
        self._succeeded(self.items, done.succeeded)
        if done.timed:
            self.timed = lane
            return
        if self._heads.claimed(lane, done.claimed, under_full=done.under_full, took=took):
            self.under_full.add(lane)
        for task in done.claimed:
            self._rounds.serve(lane, task.place or 0)
        self.ledger.leased(done.claimed, parked.tasks)
        await self._learn(rows)

    async def _flush(self, rows: Rows, minted: list[bytes]) -> None:
        """Write, then look whether ids that callers made were taken after all: a request may come twice, by ways of
        different length, and the first one's task may have closed meanwhile (IDEM-05)."""
        if len(set(minted)) < len(minted):
            raise Doubled("two tasks of a batch have one id")
        await self.ledger.flush(rows)
        await self.flow.flush(rows)
        await self._workflows.reservations.release(rows)
        if minted and await rows.closed(minted):
            raise Doubled("a closed task has one of these ids")

    def _number(self, command: c.Enqueue) -> None:
        """Id and round in order of arrival, before anything is awaited."""
        if command.task_id is None:
            command.task_id = self._mint.task_id(self._clock())
        draft = command.draft
        if command.place is None and not command.delay and draft.run_at is None:
            command.place = self._rounds.next(draft.lane, draft.fairness_key)

    # ------------------------------------------------------------------------------------------------------ phases
    async def _let_in(self, rows: Rows, enqueues: list[tuple[Item, Any]]) -> list[tuple[Item, Any]]:
        """Those of `enqueues` that make tasks."""
        intake = Intake(rows)
        starts = [pair for pair in enqueues if pair[1].start is not None]
        if starts:
            enqueues = [pair for pair in enqueues if pair[1].start is None]
        enqueues = await intake.free(await intake.new(enqueues) if self._doubled else enqueues)
        self.answers += intake.answers
        self.deferred += intake.deferred
        self._displacing = intake.displacing
        if starts:
            enqueues += await self._starts.free(rows, starts)
            self.answers += self._starts.answers
            self.deferred += self._starts.deferred
            self._workflows.target(self._starts.targets)
        return enqueues

    async def _succeed(self, rows: Rows, completions: list[tuple[Item, Any]]) -> list[tuple[Item, Any]]:
        """Those of `completions` that need a look at their rows: other outcomes, tasks that somebody waits for here
        (the row is the answer), and what an earlier batch could not do without one."""
        simple: dict[bytes, tuple[Item, c.Complete]] = {}
        others: list[tuple[Item, Any]] = []
        for item, command in completions:
            if self._is_simple(item) and command.lease.task_id not in simple:
                simple[command.lease.task_id] = (item, command)
            else:
                others.append((item, command))
        if simple:
            succeeded = await rows.succeed([command for _, command in simple.values()])
            self._succeeded([item for item, _ in simple.values()], succeeded)
        return others

    def _succeeded(self, items: Sequence[Item], succeeded: set[bytes]) -> None:
        """Of these successes, those that the database did not take by their leases alone go to the next batch, which
        looks at their rows."""
        self.succeeded = succeeded
        for item in items:
            assert isinstance(item.command, c.Complete)
            task_id = item.command.lease.task_id
            if task_id in succeeded:
                self.answers.append((item, c.Changed(task_id, State.SUCCEEDED)))
            else:
                self.deferred.append(item)

    def _is_simple(self, item: Item) -> bool:
        done = item.command
        if not isinstance(done, c.Complete) or done.outcome != "succeeded":
            return False
        lease = done.lease
        return not (item.deferrals or self._patient or not lease.job or lease.task_id in self._watched)

    async def _advance(self, rows: Rows, appends: Items) -> Items:
        """Those of `appends` that need a look at their rows."""
        if self._patient:
            return appends
        answers, deferred, others = await advance_all(rows, appends, self._max_events)
        self.answers += answers
        self.deferred += deferred
        return others

    async def _lock(self, rows: Rows, named: list[tuple[Item, Any]]) -> tuple[dict[Item, bytes], dict[bytes, Task]]:
        """Lock the named rows into the ledger. Gives the main one of each item, and what became of those that are not
        open. Items whose row is held elsewhere are deferred and removed from `named`."""
        if not named:
            return {}, {}
        ids_of = {item: self._workflows.ids_of(item) for item, _ in named}
        ids = list(dict.fromkeys(i for found in ids_of.values() for i in found))
        self.ledger.load((await rows.lock(ids, wait=self._patient)).values())
        missing = [task_id for task_id in ids if task_id not in self.ledger.rows]
        traces = await rows.trace(missing) if missing else {}
        held = {task_id for task_id, task in traces.items() if not is_closed(task.state)}
        if held:
            self._put_off(named, [item for item, found in ids_of.items() if not held.isdisjoint(found)])
        return {item: found[0] for item, found in ids_of.items()}, traces

    async def _claim(self, rows: Rows) -> None:
        fresh: list[Parked] = []
        for parked in self.polls:
            request = parked.request
            if parked.repeated:
                parked.tasks = await rows.leased_by(request.incarnation, request.capacity, poll=request.poll)
                self.ledger.load(parked.tasks)
            if not parked.tasks:
                fresh.append(parked)
        self._fresh = fresh
        wanted = self.flow.widened(demands(fresh, self._heads.after))
        if wanted:
            self._claimed, exhausted = await self._heads.claim(rows, wanted)
            self.under_full.update(exhausted)
            for tasks in self._claimed.values():
                self.ledger.load(tasks)

    async def _learn(self, rows: Rows, others: set[str] | None = None) -> None:
        """The highest stored round of lanes of old tasks, and of `others`, that this server sees for the first time."""
        unknown = self._rounds.unknown({task.lane for task in self.ledger.rows.values()} | (others or set()))
        if unknown:
            places = await rows.places(unknown)
            for lane in unknown:
                self._rounds.learn(lane, *places.get(lane, (0, 0)))

    # --------------------------------------------------------------------------------------------------- decisions
    def _answer(self, item: Item, decision: Callable[..., c.Outcome | None], *arguments: object) -> None:
        """A rejected command gets its typed error and touches nothing. None: it is for the next batch."""
        try:
            outcome = decision(*arguments)
        except PerdureError as error:
            outcome = error
        if outcome is None:
            self.deferred.append(item)
        else:
            self.answers.append((item, outcome))

    def _decide(self, item: Item, command: Named, gone: Task | None) -> c.Outcome | None:
        workflows = self._workflows
        if isinstance(command, c.ScheduleCommand):
            return workflows.schedules.decide(item, command, self._now)
        match command:
            case c.Complete():
                return self._complete(command, self.ledger.rows.get(command.lease.task_id) or gone)
            case c.Append():
                return workflows.append(command, gone, self._now)
            case c.Tell():
                return workflows.tell(item, command, gone, self._now)
            case c.Terminate():
                return workflows.terminate(item, command, gone, self._now)
            case c.Pause():
                return workflows.pause(item, command, gone, self._now)
            case c.Reset():
                return workflows.reset(item, command, gone, self._now)
            case c.Enqueue() if item in self._displacing:
                holder = self._displacing[item]
                old = self.ledger.rows.get(holder.task_id) or gone
                effects, outcome = displace(command, holder, old, self._now, self._rounds)
                self.ledger.apply(effects)
                return outcome
            case c.Enqueue():
                return workflows.start_onto(item, command, gone, self._now)
        task = self.ledger.rows.get(command.task_id) or gone
        if task is None or task.namespace != command.namespace or not decide.is_whole(task):
            raise NotFound("there is no such task", field="task_id")
        if isinstance(command, c.Retry):
            self._apply(decide.retry(task, self._now, self._rounds))
        elif isinstance(command, c.NoteBulk):
            self._apply(bulk.note(task, command, self._now))
        elif task.kind == Kind.WORKFLOW and not is_closed(task.state):
            self._relatives.cancel(task, command, self._now)
        else:
            self._apply(decide.cancel(task, command, self._now))
        after = self.ledger.rows.get(task.id, task)
        return c.Changed(task.id, after.state, after.cancel_requested_at is not None)

    def _complete(self, command: c.Complete, task: Task | None) -> c.Outcome:
        if task is None:
            raise LeaseLost(decide.why_lost(None))
        if task.kind == Kind.WORKFLOW:
            return self._workflows.complete(task, command, self._now)
        effects, state = decide.complete(task, command, self._now, self._mint, self._rounds)
        apply = self.ledger.apply if task.kind is Kind.JOB else self._apply  # nobody hears of a job's end but its owner
        apply(effects)
        return c.Changed(task.id, state)

    def _apply(self, effects: Iterable[Effect]) -> None:
        self._relatives.apply(effects, self._now)

    def _enqueue(self, item: Item, command: c.Enqueue) -> c.Outcome:
        if command.start is not None:
            return self._workflows.start(item, command, self._now)
        inserted = decide.enqueue(command, self._now, self._rounds)
        self.ledger.apply([inserted])
        return c.Enqueued(inserted.task.id, False, inserted.task.created_at)

    def _hand_out(self, ready: dict[str, list[Task]]) -> None:
        """Lease ready tasks to the polls, in queue order."""
        still = {
            lane: [
                t for t in tasks if (now := self.ledger.rows[t.id]).place is not None and now.state == State.ENQUEUED
            ]
            for lane, tasks in ready.items()
        }
        still, refused = self.flow.screen(still)
        for parked, task in assign(self._fresh, still, self._workflows.sticky(still)):
            self._rounds.serve(task.lane, task.place or 0)
            guard(self.ledger, partial(self._lease, parked), task, self._now)
        self.flow.settle(still, refused)

    def _lease(self, parked: Parked, task: Task, now: int) -> None:
        request = parked.request
        lease = decide.claim(task, request.incarnation, request.worker, request.poll, now, self._mint.lease_bits())
        if task.kind == Kind.WORKFLOW:  # before anything is handed out: it may not be readable
            request.turns[task.id] = self._workflows.begin(lease.task, now)
        self.ledger.apply([lease])
        parked.tasks.append(lease.task)

    def _match(self) -> None:
        """What the claim left open is matched with tasks that became ready in this batch. Never past older ones: only
        in lanes that the claim found exhausted and where nothing older became ready."""
        new, again = self.ledger.became_ready()
        self.ready = [*new, *again]
        older = {task.lane for task in again}
        self.heat.update(older)
        if not self._fresh:
            self.heat.update(task.lane for task in new)
            return
        ready: dict[str, list[Task]] = {}
        for task in sorted(new, key=lambda t: (t.priority, t.place or 0, t.id)):
            if task.lane in self.under_full and task.lane not in older:
                ready.setdefault(task.lane, []).append(task)
            else:
                self.heat.add(task.lane)
        self._hand_out(ready)
        rows = self.ledger.rows
        self.heat.update(
            lane for lane, tasks in ready.items() if any(rows[task.id].place is not None for task in tasks)
        )


def _time() -> float:
    """Seconds of the event loop's clock: the one that marks go by."""
    return asyncio.get_running_loop().time()
