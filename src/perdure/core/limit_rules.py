"""Limits on what runs at once and on how often something starts: the rules (QUOTA-06, QUOTA-12, QUOTA-13).

A limit belongs to a namespace and has a scope:

    namespace  everything in it
    queue      what is enqueued there
    type       tasks and workflows of one name
    key        each value of a concurrency key for itself: the limit "customer" holds for every "customer:<id>"
    fairness   no limit at all, but how much more than others a fairness key gets (rounds.py)

What a limit counts together is its *subject*: the queue, the type, or one value of a key. Running work is counted from
the rows, never remembered: a task counts from its claim to the end of its lease, whoever works on it, and a workflow
run that waits does not count. A task that is heavier than a limit allows takes the whole of it.

A rate is a token bucket that holds `burst` starts and gets `rate` of them back every `per`. All that is stored of it is
the time at which it will be full again, so a bucket that is full needs no row.

A task that is refused leaves its lane: `blocked_on` names the subject, and it keeps its place for later.

The limit of a type may have a circuit breaker (breaker.py). While that is closed it binds nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy

import msgspec

from perdure.core import breaker
from perdure.core.breaker import Circuit, Stage, configured
from perdure.core.effects import Change
from perdure.core.errors import NotFound
from perdure.core.model import Task
from perdure.core.policy import wake_at
from perdure.core.states import State

NAMESPACE, QUEUE, TYPE, KEY, FAIRNESS = "namespace", "queue", "type", "key", "fairness"
SCOPES = (NAMESPACE, QUEUE, TYPE, KEY, FAIRNESS)
UNLIMITED = 1_000_000_000
"""Free slots where nothing is limited."""

_SEPARATOR = "\x1f"  # names hold no unprintable characters

LimitName = tuple[str, str, str]
"""(namespace, scope, name)."""


class Limit(msgspec.Struct, gc=False):
    """A limit as it is stored; field names and their order are those of the columns. None does not limit."""

    namespace: str
    scope: str
    name: str = ""  #: of the queue, the type or the key; "" for a namespace
    max_running: int | None = None  #: slots
    rate: int | None = None  #: starts
    per: int | None = None  #: microseconds in which as many come back
    burst: int | None = None  #: starts that a full bucket holds
    weight: int | None = None  #: tasks a round, of a fairness key
    paused: bool = False  #: nothing starts
    declared: bool = False  #: by the code of an application; what an operator sets wins
    note: str = ""
    updated_at: int = 0
    circuit: Circuit | None = None  #: the breaker of a type

    @property
    def id(self) -> LimitName:
        return (self.namespace, self.scope, self.name)

    @property
    def binds(self) -> bool:
        """Whether it may refuse anything as it is."""
        tripped = self.circuit is not None and self.circuit.stage is not Stage.CLOSED
        return tripped or self.paused or self.max_running is not None or self.rate is not None

    @property
    def interval(self) -> int:
        """Microseconds in which one token comes back."""
        assert self.rate is not None
        assert self.per is not None
        return max(1, self.per // self.rate)

    def slots(self, weight: int) -> int:
        """That a task of this weight takes: never more than there are, or it would never start."""
        return weight if self.max_running is None else min(weight, max(self.max_running, 1))


class Running(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` leased tasks that are alike."""

    namespace: str
    queue: str
    type: str
    concurrency_key: str | None
    weight: int
    count: int


def subject_of(limit: Limit, queue: str, type_: str, key: str | None) -> str | None:
    """What a task counts as for a limit of its namespace; None: the limit is not about it."""
    match limit.scope:
        case "namespace":
            counted = ""
        case "queue" if queue == limit.name:
            counted = queue
        case "type" if type_ == limit.name:
            counted = type_
        case "key" if key is not None and key.partition(":")[0] == limit.name:
            counted = key
        case _:
            return None
    return _SEPARATOR.join((limit.namespace, limit.scope, counted))


def limit_of(subject: str) -> LimitName:
    """The limit that a subject belongs to."""
    namespace, scope, counted = subject.split(_SEPARATOR)
    return (namespace, scope, counted.partition(":")[0] if scope == KEY else counted)


def subject_of_type(name: LimitName) -> str:
    """What all tasks count as that the limit of a type is about."""
    return _SEPARATOR.join(name)


def words_of(subject: str) -> str:
    """A subject for people."""
    namespace, scope, counted = subject.split(_SEPARATOR)
    return f"namespace {namespace!r}" if scope == NAMESPACE else f"{scope} {counted!r}"


class Room:
    """What is left of a limit for one subject, while a batch holds the limit."""

    def __init__(self, limit: Limit, running: int, full_at: int, now: int, probes: int | None = None) -> None:
        self.limit = limit
        self.probes = probes  #: that its breaker lets start; None: all
        self.running = running  #: slots taken
        self.full_at = max(full_at, now)
        self.started = 0  #: tokens taken
        self._now = now

    @property
    def free(self) -> int:
        """Slots, or starts, that may be given away now."""
        limit = self.limit
        if limit.paused:
            return 0
        free = UNLIMITED if limit.max_running is None else max(0, limit.max_running - self.running)
        if self.probes is not None:
            free = min(free, self.probes)
        if limit.rate is not None:
            free = min(free, self._tokens())
        return free

    def _tokens(self) -> int:
        interval, burst = self.limit.interval, self.limit.burst or 1
        return max(0, (self._now + burst * interval - self.full_at) // interval)

    def admits(self, weight: int) -> bool:
        limit = self.limit
        if limit.paused or self.probes == 0 or (limit.rate is not None and self._tokens() < 1):
            return False
        return limit.max_running is None or self.running + limit.slots(weight) <= limit.max_running

    def take(self, weight: int) -> None:
        """A task starts."""
        if self.probes is not None:
            self.probes -= 1
        self.running += self.limit.slots(weight)
        if self.limit.rate is not None:
            self.started += 1
            self.full_at += self.limit.interval

    def give_back(self, weight: int) -> None:
        """It does not start after all."""
        if self.probes is not None:
            self.probes += 1
        self.running -= self.limit.slots(weight)
        if self.limit.rate is not None:
            self.started -= 1
            self.full_at -= self.limit.interval

    @property
    def next_start_at(self) -> int | None:
        """When a start will be allowed that the rate, or an open breaker, forbids now; None: they forbid nothing."""
        circuit = self.limit.circuit
        if circuit is not None and circuit.stage is Stage.OPEN and self.probes == 0 and circuit.until > self._now:
            return circuit.until
        if self.limit.rate is None or self.limit.paused or self._tokens() >= 1:
            return None
        return self.time_of(1)

    def time_of(self, start: int) -> int:
        """When the rate allows so many starts from here on."""
        return self.full_at + (start - (self.limit.burst or 1)) * self.limit.interval


class Limits:
    """The limits of all namespaces, as a server knows them."""

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._by_namespace: dict[str, dict[LimitName, Limit]] = {}
        self._binding: dict[str, dict[LimitName, Limit]] = {}  #: those that may refuse something
        self.breakers: dict[tuple[str, str], Limit] = {}  #: (namespace, type) -> its limit, which has a breaker
        self.shares: dict[tuple[str, str], int] = {}  #: (namespace, fairness key) -> tasks a round
        for limit in limits:
            if limit.scope == FAIRNESS:
                self.shares[limit.namespace, limit.name] = limit.weight or 1
            else:
                self._by_namespace.setdefault(limit.namespace, {})[limit.id] = limit
                if limit.binds:
                    self._binding.setdefault(limit.namespace, {})[limit.id] = limit
                if limit.circuit is not None:
                    self.breakers[limit.namespace, limit.name] = limit

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def touch(self, lane: str) -> bool:
        """Whether tasks of a lane may be limited."""
        namespace, queue, _ = lane.split(_SEPARATOR)
        found = self._binding.get(namespace)
        return found is not None and any(
            scope != QUEUE or name == queue for _, scope, name in found
        )  # fmt: skip

    def of(self, namespace: str, queue: str, type_: str, key: str | None) -> Iterator[tuple[Limit, str]]:
        """The limits of a task and its subjects, also those that bind nobody."""
        return _of(self._by_namespace.get(namespace), namespace, queue, type_, key)

    def of_task(self, task: Task) -> Iterator[tuple[Limit, str]]:
        """Those that may refuse it, the narrowest first: that is the one it is blocked on, so that a wide limit never
        waits for tasks that a narrow one refuses."""
        found = self._binding.get(task.namespace)
        return _of(found, task.namespace, task.queue, task.type, task.concurrency_key)

    def get(self, name: LimitName) -> Limit | None:
        return self._by_namespace.get(name[0], {}).get(name)

    def occupied(self, running: Iterable[Running]) -> dict[str, int]:
        """Slots taken, by subject."""
        taken: dict[str, int] = {}
        for alike in running:
            for limit, subject in self.of(alike.namespace, alike.queue, alike.type, alike.concurrency_key):
                slots = limit.slots(alike.weight) * alike.count
                taken[subject] = taken.get(subject, 0) + slots
        return taken


def _of(
    found: Mapping[LimitName, Limit] | None, namespace: str, queue: str, type_: str, key: str | None
) -> Iterator[tuple[Limit, str]]:
    if not found:
        return
    names = (
        (namespace, KEY, "" if key is None else key.partition(":")[0]),
        (namespace, TYPE, type_),
        (namespace, QUEUE, queue),
        (namespace, NAMESPACE, ""),
    )
    for name in names:
        limit = found.get(name)
        if limit is not None and (subject := subject_of(limit, queue, type_, key)) is not None:
            yield limit, subject


def refused_by(task: Task, limits: Limits, rooms: Mapping[str, Room]) -> str | None:
    """The subject of the first limit that does not admit a task; None: it may start."""
    for _, subject in limits.of_task(task):
        room = rooms.get(subject)
        if room is not None and not room.admits(task.weight):
            return subject
    return None


def block(task: Task, subject: str) -> Change:
    """A ready task leaves its lane. Its owner sees no change of it, so the time of the last one stays."""
    task = copy(task)
    task.blocked_on, task.blocked_place = subject, task.place
    task.place = None
    task.wake_at = wake_at(task)
    return Change(task)


def unblock(task: Task) -> Change:
    """It gets its place back."""
    task = copy(task)
    task.place = task.blocked_place
    task.blocked_on = task.blocked_place = None
    task.wake_at = wake_at(task)
    return Change(task)


def is_blocked(task: Task) -> bool:
    """Whether a limit keeps it from its lane."""
    return task.state == State.ENQUEUED and task.place is None and task.blocked_place is not None


# ------------------------------------------------------------------------------------------------------------- changes
def put(known: Limit | None, new: Limit, now: int) -> Limit:
    """The limit that is stored once `new` was asked for."""
    if known is not None and new.declared and not known.declared:
        return known
    made = copy(new)
    made.paused = known is not None and known.paused
    made.circuit = configured(None if known is None else known.circuit, new.circuit)
    if made.paused and known is not None and not made.note:
        made.note = known.note
    made.updated_at = now
    return made


def pause(known: Limit | None, name: LimitName, paused: bool, note: str, now: int) -> Limit | None:
    """The limit after it was paused or resumed; None: none is needed."""
    if known is None and not paused:
        return None
    made = Limit(*name) if known is None else copy(known)
    made.paused = paused
    made.note = note if paused else ""
    made.updated_at = now
    bare = made.max_running is None and made.rate is None and made.circuit is None and not made.declared
    return None if bare and not paused else made


def switch(known: Limit | None, open_: bool, note: str, now: int) -> Limit:
    """The limit of a type after somebody opened or closed its breaker."""
    if known is None or known.circuit is None:
        raise NotFound("the type has no breaker", field="name")
    return with_circuit(known, breaker.switch(known.circuit, open_, note, now), now)


def with_circuit(limit: Limit, circuit: Circuit, now: int) -> Limit:
    """The limit whose breaker stands like this. Servers have to hear of its moves, and not of what it counts."""
    made = copy(limit)
    made.circuit = circuit
    if limit.circuit is None or circuit.moved(limit.circuit):
        made.updated_at = now
    return made
