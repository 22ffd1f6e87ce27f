"""The engine of one server: gathers commands, runs them in batches, and answers after the commit.

Servers are all alike and own nothing: the database is the point of serialization. SQLite has one batch in flight,
PostgreSQL two. While a batch commits the next one gathers, so batching costs nothing when idle and shares statements,
round trips and the disk sync under load.

What a failure does: a value that the database refuses (or a bug) bisects the batch until the one command that is at
fault is alone and gets the error; anything else (connection, deadlock, full disk) parks the batch and tries it again
with back-off, with the same ids; a commit of unknown outcome is looked up before anything is answered or repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from perdure.core import commands as c
from perdure.core.errors import Internal, InvalidArgument, OutcomeUnknown, Unavailable
from perdure.core.history_size import MAX_EVENTS
from perdure.core.ids import Mint
from perdure.core.model import Task
from perdure.core.rounds import MAX_LANES, Rounds
from perdure.core.turn_commands import StartChildWorkflow
from perdure.engine.ageing import Ageing, Heads
from perdure.engine.alarms import Alarms
from perdure.engine.apart import Apart
from perdure.engine.batch import Batch
from perdure.engine.bulk import BulkActions
from perdure.engine.dispatch import Dispatch, Parked, PollRequest
from perdure.engine.doctor import Doctor
from perdure.engine.exchange import TIMED_SECONDS
from perdure.engine.flow_service import FlowService
from perdure.engine.gather import Gatherer, Item
from perdure.engine.hints import Hints, Notice
from perdure.engine.ledger import Overtaken
from perdure.engine.marks import Marks
from perdure.engine.nudges import Nudges
from perdure.engine.outage import Outage
from perdure.engine.outbox import Outbox
from perdure.engine.retention import Retention
from perdure.engine.service import Loop
from perdure.engine.tally import Tally
from perdure.engine.watches import Watches
from perdure.engine.webhooks import Webhooks
from perdure.store.base import CommitUnknown, DataFault, Doubled, KeysHeld, Refusal, Store, StoreFault

log = logging.getLogger("perdure.engine")

RETENTION_SECONDS = 30 * 86_400.0  #: how long closed tasks are kept by default (PERS-13)
MAX_DEFERRALS = 20  #: then a command waits for its row's lock, by itself
_DEFERRALS_AT_ONCE = 3
_LEARN_AGAIN = 1.0  #: seconds until a lane's rounds are asked for again where others serve it too
_REFUSALS = 3  #: then a refused statement is its commands' fault
_DOUBLED = 3  #: looks for ids that are taken; another server may be inserting the same ones
_TURNS = 4
"""Of the event loop between two batches: what a batch answered leaves before the next one starts, and what has arrived
meanwhile joins that."""
_STOP_SECONDS = 5.0  #: that batches in flight may take once the engine stops
_RETRY_AFTER = 5.0  #: seconds after which a caller that was sent back may try again
_LONGEST_PAUSE = 2.0  #: seconds between tries while the database is away


class Engine:
    """The one door to the rows of a store. Start it once; `apply`, `poll` and `watch` from the same event loop."""

    def __init__(
        self,
        store: Store,
        *,
        mint: Mint | None = None,
        retention: float = RETENTION_SECONDS,
        max_history_events: int = MAX_EVENTS,
        webhooks_to_private: bool = False,
    ) -> None:
        self.store = store
        self.retention = retention  #: seconds that a closed task is kept
        self.max_history_events = max_history_events  #: then a run has to close or to continue as new (RPLY-26)
        self.mint = mint or Mint()
        self.outage = Outage()
        self.watches = Watches(store)
        self.nudges = Nudges()
        self.tally = Tally(store.now)
        self.dispatch = Dispatch(self._wake)
        self._rounds = Rounds()
        self._timed: set[str] = set()  #: lanes in which tasks with time-outs were met lately
        self._marks = Marks() if store.dead_entries else None
        self._ageing = Ageing()
        self._gatherer = Gatherer()
        self._work = asyncio.Event()
        self._runners: list[asyncio.Task[None]] = []
        self._strays: set[asyncio.Task[object]] = set()
        self._deferred: dict[Item, None] = {}  #: commands that will be tried again a little later
        self._patient = False  #: one command waits for a lock
        self._apart = Apart(lambda item: self._until_done([item], []), self._stray)
        self._faults = 0  #: tries that failed since one succeeded
        self._learning = asyncio.Lock()
        self._learned: dict[str, float] = {}  #: lane -> when it was asked for, on the loop's clock
        self._stopping = False
        self._bulk = BulkActions(store, self.apply, self.mint)
        self.doctor = Doctor(store)
        self._alarms = Alarms(store, self.apply, lambda: self._loops[0].nudge())
        self._hints = Hints(
            store, self._heard_ready, self._heard_closed, lambda: self._loops[0].nudge(), self.nudges.tell
        )
        self._notice = Notice(store, self._look_at_all)
        self.flow = FlowService(store, self._rounds, self.apply, self.dispatch.heat, lambda: self._flow_loop.nudge())
        self.outbox = Outbox(store, self.apply, self.now, retention)
        self.webhooks = Webhooks(store, self.outbox, self.now, private=webhooks_to_private)
        kept = Retention(self.apply, self.now, retention)
        services = (self._alarms, kept, self._hints, self._notice, self.outbox, self.webhooks, self.doctor)
        self._flow_loop = Loop(self.flow, self.outage)
        self._loops = [*(Loop(service, self.outage) for service in services), self._flow_loop]

    def now(self) -> int:
        """The store's clock in microseconds, as far as known without asking."""
        return self.store.now()

    @property
    def waiting(self) -> int:
        """Commands that wait for a batch."""
        return len(self._gatherer) + len(self._deferred)

    async def start(self, *, services: bool = True) -> None:
        """Run batches; the store must be open. Without `services` nothing happens by itself (alarms, retention, hints):
        whoever steps the clock applies the chores."""
        with suppress(StoreFault):  # the first batch tries again
            await self.flow.load()
        for number in range(self.store.batches_in_flight):
            self._runners.append(asyncio.create_task(self._run(), name=f"perdure-batches-{number}"))
        for loop in self._loops if services else ():
            loop.start()

    async def stop(self) -> None:
        """Answer parked polls with nothing, finish the batches in flight, refuse the rest with Unavailable."""
        for loop in self._loops:
            await loop.stop()
        self._stopping = True
        self.dispatch.close()
        self._wake()
        strays = list(self._strays)
        for stray in strays:
            stray.cancel()
        if self._runners:
            _, hung = await asyncio.wait(self._runners, timeout=_STOP_SECONDS)
            for runner in hung:  # the database does not answer; what it was asked for has an unknown outcome
                runner.cancel()
        await asyncio.gather(*self._runners, *strays, return_exceptions=True)
        self._runners.clear()
        self._gatherer.put_back([*self._deferred, *self._apart])
        self._gatherer.fail(Unavailable("the server is stopping", retry_after=1.0))
        await self.webhooks.stop()
        await self.watches.close()

    async def apply(self, commands: Sequence[c.Command]) -> list[c.Outcome]:
        """One outcome a command, in order, each committed; a rejected command's error is its outcome. Raises
        Unavailable when the server stops or too much waits."""
        if self._stopping:
            raise Unavailable("the server is stopping", retry_after=1.0)
        if not commands:
            return []
        future: asyncio.Future[list[c.Outcome]] = asyncio.get_running_loop().create_future()
        self._gatherer.put(commands, future)
        self._work.set()
        return await future

    async def poll(self, request: PollRequest) -> list[Task]:
        """Leased tasks, or none after `request.wait` seconds."""
        if self._stopping:
            raise Unavailable("the server is stopping", retry_after=1.0)
        return await self.dispatch.poll(request)

    async def watch(self, task_id: bytes, wait: float, *, namespace: str, whole: bool = True) -> Task | None:
        """The task once it has closed, or as it is after `wait` seconds; None at once when the namespace has no such
        task: not even the time tells whether others have it. Unless `whole`, payload and headers may be missing, which
        saves a read. Raises Unavailable while the database cannot be reached."""
        return await self.watches.watch(task_id, wait, namespace=namespace, whole=whole)

    # ------------------------------------------------------------------------------------------------------ batches
    def _wake(self) -> None:
        self._work.set()

    async def _run(self) -> None:
        """One of the runners: takes what has gathered, as long as the engine runs."""
        while True:
            if not self._gatherer and not self.dispatch:
                if self._stopping:
                    return
                self._work.clear()
                await self._work.wait()
                continue
            items = self._gatherer.take()
            polls = self.dispatch.take(_lanes_touched(items) | self.flow.lanes_freed(items, self.dispatch.lanes))
            if items or polls:
                await self._until_done(items, polls)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def _until_done(self, items: list[Item], polls: list[Parked], *, patient: bool = False) -> None:
        """Run a batch until its outcome is known, and answer it. A `patient` one waits for its row's lock."""
        tries = doubled = 0
        while True:
            try:
                batch = await self._prepare(items, polls, doubled=doubled > 0, patient=patient)
                await self._transact(batch)
            except DataFault as fault:
                if isinstance(fault, Doubled) and doubled < _DOUBLED:
                    doubled += 1
                    self._unserve(polls)
                    polls = []
                    continue
                return await self._bisect(items, polls, InvalidArgument(f"the database refused a value: {fault}"))
            except KeysHeld:
                return await self._set_apart(items, polls)
            except Overtaken:  # whoever overtook it has committed, so this does not go on for ever
                self._unserve(polls)
                polls = []
            except StoreFault as fault:
                if self._stopping:
                    return self._refuse(items, polls, unknown=isinstance(fault, CommitUnknown))
                tries += 1
                for parked in polls:  # what committed itself may have leased to them
                    parked.repeated = True
                if isinstance(fault, Refusal) and tries >= _REFUSALS:
                    return await self._bisect(items, polls, Internal(f"the database refused it: {fault}"))
                self._unserve(polls)
                polls = []
                if self.outage.long:
                    return await self._send_back(items, fault)
                await self._back_off(fault)
                if not items:
                    return None
            except asyncio.CancelledError:
                self._unserve(polls)
                for item in items:
                    item.answer(OutcomeUnknown("the server stopped while the database did not answer", retry_after=1.0))
                raise
            except Exception as bug:  # a bug must cost its command, not the server
                log.exception("a batch of %d commands failed", len(items))
                return await self._bisect(items, polls, Internal(f"{type(bug).__name__}: {bug}"))
            else:
                self._faults = 0
                self.outage.reached()
                if batch.timed is None:
                    return self._settle(batch, polls)
                self._go_the_long_way(batch.timed)
                self._settle(batch, [])
                items = []  # its poll is still to be served

    async def _set_apart(self, items: list[Item], polls: list[Parked]) -> None:
        """Another transaction holds a key of this batch: commands with keys go their own way, the rest goes on."""
        self._unserve(polls)
        keyed = {item: None for item in items if _reserves_keys(item.command)}
        self._apart.add(keyed)
        if others := [item for item in items if item not in keyed]:
            await self._until_done(others, [])

    async def _back_off(self, fault: StoreFault) -> None:
        self.outage.fault(fault)
        self._faults += 1
        pause = min(0.05 * 2 ** min(self._faults, 10), _LONGEST_PAUSE)
        await asyncio.sleep(pause * (0.5 + random.random() / 2))

    async def _send_back(self, items: list[Item], fault: StoreFault) -> None:
        """The outage is long: whoever waits is told so. Nothing of these was written, unless a commit's outcome is
        unknown."""
        error = OutcomeUnknown if isinstance(fault, CommitUnknown) else Unavailable
        for item in items:
            item.answer(error(f"the database is away: {fault}", retry_after=_RETRY_AFTER))
        self._gatherer.fail(Unavailable(f"the database is away: {fault}", retry_after=_RETRY_AFTER))
        await self._back_off(fault)

    async def _prepare(self, items: list[Item], polls: list[Parked], *, doubled: bool, patient: bool) -> Batch:
        """A batch whose lanes are known. Those seen for the first time are asked for one runner at a time, so that
        batches in flight keep the order of arrival."""
        if not self.flow.loaded:  # nothing is handed out without a look at the limits
            await self.flow.load()
        if lanes := self._to_learn(_lanes_touched(items)):
            async with self._learning:
                if lanes := self._to_learn(lanes):  # the runner before may have asked for them
                    async with self.store.batch() as rows:
                        places = await rows.places(sorted(lanes))
                    if len(self._learned) > MAX_LANES:
                        self._learned.clear()
                    for lane in lanes:
                        self._rounds.learn(lane, *places.get(lane, (0, 0)))
                        self._learned[lane] = asyncio.get_running_loop().time()
        return Batch(
            items,
            polls,
            self.mint,
            self._rounds,
            self.now,
            watched=self.watches,
            timed=self._timed,
            doubled=doubled,
            patient=patient,
            store=self.store,
            max_events=self.max_history_events,
            known=self.flow.known,
            heads=Heads(self._marks, self._ageing, asyncio.get_running_loop().time()),
            recorded=await self.outbox.recorded(),
        )

    def _to_learn(self, lanes: set[str]) -> set[str]:
        """Lanes seen for the first time; while there are other servers, also those not asked for lately."""
        unknown = set(self._rounds.unknown(lanes))
        if self._hints.others or self._notice.others:
            late = asyncio.get_running_loop().time() - _LEARN_AGAIN
            unknown.update(lane for lane in lanes if self._learned.get(lane, 0.0) < late)
        return unknown

    async def _transact(self, batch: Batch) -> None:
        """The transaction of a batch, committed or not at all."""
        begun = asyncio.get_running_loop().time()
        try:
            async with self.store.batch(single=batch.single) as rows:
                await batch.run(rows)
            self.tally.transacted(asyncio.get_running_loop().time() - begun)
        except CommitUnknown as unknown:
            if not await self._committed(unknown):
                raise StoreFault(f"the commit did not happen: {unknown}") from unknown
        finally:
            batch.flow.over()

    async def _committed(self, unknown: CommitUnknown) -> bool:
        pause = 0.05
        while True:
            try:
                return await self.store.committed(unknown)
            except StoreFault as fault:
                self.outage.fault(fault)
                if self._stopping or self.outage.long:
                    raise unknown from fault
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _bisect(self, items: list[Item], polls: list[Parked], error: InvalidArgument | Internal) -> None:
        """Some command of these is at fault: halve them until it is alone."""
        if not items:  # a row that is claimed is at fault: look again, but not at once
            await asyncio.sleep(_LONGEST_PAUSE / 2)
        self._unserve(polls)
        if len(items) <= 1:
            for item in items:
                item.answer(error)
            return
        middle = len(items) // 2
        await self._until_done(items[:middle], [])
        await self._until_done(items[middle:], [])

    def _refuse(self, items: list[Item], polls: list[Parked], *, unknown: bool) -> None:
        """The engine stops while the database is away: nothing else is tried."""
        self._unserve(polls)
        self.dispatch.close()
        error = OutcomeUnknown if unknown else Unavailable
        for item in items:
            item.answer(error("the server is stopping", retry_after=1.0))
        self._gatherer.fail(Unavailable("the server is stopping", retry_after=1.0))

    def _go_the_long_way(self, lane: str) -> None:
        """No exchanges in this lane for a while."""
        self._timed.add(lane)
        asyncio.get_running_loop().call_later(TIMED_SECONDS, self._timed.discard, lane)

    def _settle(self, batch: Batch, polls: list[Parked]) -> None:
        """The batch is committed: answer, hand over, wake whom it concerns."""
        closed = batch.ledger.closed
        self.watches.closed(closed, batch.ledger.runs)
        self.watches.notify(batch.succeeded)
        ended = [*(task.id for task in closed), *batch.succeeded]
        if self.outbox.news:
            self.outbox.news.tell([*batch.published, *batch.streamed, *ended])
        hungry: list[Parked] = []
        self.dispatch.release(parked for parked in polls if parked.tasks)
        for parked in polls:
            parked.repeated = False
            if not parked.tasks:
                hungry.append(parked)
            elif not parked.future.done():
                self.dispatch.served(parked.request.lanes)
                parked.future.set_result(parked.tasks)
            else:
                self._take_back(parked.tasks)
        for item, outcome in batch.answers:
            item.answer(outcome)
        self._defer(batch.deferred)
        if self._marks is not None:
            for task in batch.ready:
                self._marks.ahead(task)
        self.dispatch.park_again(hungry, batch.under_full | batch.flow.denied_lanes)
        self.flow.note(batch.flow)
        self.dispatch.heat(batch.heat)
        nudges = batch.nudges()
        self.nudges.tell(nudges)
        self._hints.tell(batch.heat, [*ended, *batch.streamed], nudges)
        self._alarms.note(batch.ledger.next_alarm())
        for action in batch.begun:
            self._stray(self._bulk.drive(action))
        for item in batch.items:
            if isinstance(item.command, (c.OpenSession, c.CloseSession)):
                self.dispatch.forget(item.command.incarnation)
                self.nudges.forget(item.command.incarnation)
                if isinstance(item.command, c.CloseSession):
                    self._alarms.end_sessions()
        self.tally.settled(batch)

    def _defer(self, items: list[Item]) -> None:
        """Commands whose rows are held elsewhere: to the next batch, after some tries a little later, and at last one
        at a time with a lock that waits, beside the runners, which must never wait for anybody's row."""
        at_once: list[Item] = []
        for item in items:
            item.deferrals += 1
            if item.deferrals >= MAX_DEFERRALS and not self._patient:
                self._patient = True
                self._stray(self._wait_for(item))
            elif item.deferrals <= _DEFERRALS_AT_ONCE:
                at_once.append(item)
            else:
                self._deferred[item] = None
                pause = min(0.001 * 2 ** (item.deferrals - _DEFERRALS_AT_ONCE), 0.05)
                asyncio.get_running_loop().call_later(pause, self._resume, item)
        self._gatherer.put_back(at_once)

    def _resume(self, item: Item) -> None:
        if item in self._deferred:
            del self._deferred[item]
            self._gatherer.put_back([item])
            self._wake()

    async def _wait_for(self, item: Item) -> None:
        try:
            await self._until_done([item], [], patient=True)
        finally:
            self._patient = False

    def _unserve(self, polls: list[Parked]) -> None:
        """The batch was not committed: its polls wait on, and are looked at again."""
        for parked in polls:
            parked.tasks.clear()
            parked.request.turns.clear()
        self.dispatch.park_again(polls, set())
        self.dispatch.heat({lane for parked in polls for lane in parked.request.lanes})

    def _take_back(self, tasks: Iterable[Task]) -> None:
        """The worker went away while these were leased to it: back to the queue, not after the lease's time."""
        self._stray(self.apply([c.Complete(lease=task.lease, outcome="released") for task in tasks]))

    def _stray(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something that nobody waits for."""
        stray = asyncio.create_task(work)
        self._strays.add(stray)
        stray.add_done_callback(self._stray_ended)

    def _stray_ended(self, stray: asyncio.Task[object]) -> None:
        self._strays.discard(stray)
        if not stray.cancelled() and (error := stray.exception()) is not None:
            log.info("what nobody waits for was not done: %s", error)

    # -------------------------------------------------------------------------------------------------------- hints
    def _heard_ready(self, lanes: Iterable[str]) -> None:
        self.dispatch.heat(lanes)

    def _heard_closed(self, task_ids: Iterable[bytes] | None) -> None:
        if task_ids is None:
            self._look_at_all()
        else:
            self.watches.notify(task_ids)
            self.outbox.heard(task_ids)

    def _look_at_all(self) -> None:
        self.watches.notify_all()
        self.outbox.news.tell_all()
        self.dispatch.heat_all()


def _reserves_keys(command: c.Command) -> bool:
    match command:
        case c.Enqueue(key=key):
            return key is not None
        case c.Tell() | c.Reset() | c.PutSchedule() | c.TriggerSchedule():
            return True
        case c.Append(commands=wanted):
            return any(isinstance(one, StartChildWorkflow) for one in wanted)
        case _:
            return False


def _lanes_touched(items: Sequence[Item]) -> set[str]:
    """Lanes in which these commands make tasks ready."""
    return {item.command.draft.lane for item in items if isinstance(item.command, c.Enqueue) and not item.command.delay}
