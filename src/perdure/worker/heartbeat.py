"""The heartbeat thread: keeps the leases of a worker alive, whatever its handlers do to the event loop.

One request for all leases that are due. The first beat of a lease acknowledges its receipt and is sent a moment
after the delivery, only for what still runs then: most jobs are over before. Progress and checkpoints are brought a
second after they were given, at the latest. The answer may say that a task is to be canceled, or that its lease is
lost; so that this is not heard ten seconds late, the thread also waits for the server's nudges.

Whatever goes wrong with a heartbeat, the next one is sent: leases end under handlers that run when the thread does. If
it ends nevertheless, the worker is told.

The thread has an event loop of its own and, over the network, a connection of its own (plain POST). An embedded server
lives on the worker's loop: a handler that blocks that loop blocks the server as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable

from perdure.client.base import Service
from perdure.core.errors import InvalidArgument, PerdureError
from perdure.core.messages import Beat, Heartbeat, Nudge
from perdure.core.model import HEARTBEAT_SECONDS, Payloads, Progress
from perdure.worker.execute import Run

log = logging.getLogger("perdure.worker")

News = tuple[Progress | None, Payloads | None]
"""Progress and checkpoint of a run when a heartbeat was made."""

ACKNOWLEDGE_SECONDS = 0.05
"""From a delivery to its acknowledgement."""
NEWS_SECONDS = 1.0
"""From a checkpoint or progress to the heartbeat that brings it."""
UNREPORTED_SECONDS = 3.0
"""From the end of a handler to the first heartbeat for its lease, when the report does not get through."""
NUDGE_RETRY_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_REQUEST_SECONDS = 5.0
_REQUEST_BYTES = 4 * 1024 * 1024
_JOIN_SECONDS = 0.5
_FOREVER = 3600.0


class Heartbeats:
    """The leases of one worker and the thread that keeps them. Made on the worker's loop; called there are `stopped`
    for a run that the server wants stopped, and `died` when no lease is kept any more."""

    def __init__(
        self,
        service: Service,
        incarnation: int,
        stopped: Callable[[Run], None],
        died: Callable[[BaseException], None],
        *,
        own_connection: bool,
    ) -> None:
        self._service = service
        self._incarnation = incarnation
        self._stopped = stopped
        self._died = died
        self._own_connection = own_connection
        self._worker_loop = asyncio.get_running_loop()
        self._interval = float(HEARTBEAT_SECONDS)
        self._runs: dict[bytes, Run] = {}
        self._lock = threading.Lock()
        self._due = 0.0  # when the thread is going to look again, on the monotonic clock
        self._ending = False
        self._healthy = True
        self.answered_at: float | None = None  #: the last request, on the monotonic clock
        self._thread = threading.Thread(target=self._main, name="perdure-heartbeat", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()

    def start(self, interval: float) -> None:
        """Beat at least every `interval` seconds, and three times in the life of each lease."""
        self._interval = interval
        if self._thread.ident is None:
            self._thread.start()

    async def stop(self) -> None:
        """End the thread; it closes its connection. One that hangs in a request is left behind."""
        self._ending = True
        self._hasten(0.0)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)

    def add(self, runs: list[Run]) -> None:
        """Leases that were just delivered."""
        with self._lock:
            for run in runs:
                self._runs[run.delivery.lease] = run
        self._hasten(runs[0].beat_at)

    def ended(self, run: Run) -> None:
        """Its handler is done; normally the report arrives before another beat is needed."""
        run.beat_at = max(run.beat_at, time.monotonic() + UNREPORTED_SECONDS)

    def drop(self, run: Run) -> None:
        """The lease is over."""
        with self._lock:
            self._runs.pop(run.delivery.lease, None)

    def changed(self, run: Run) -> None:
        """A handler gave progress or a checkpoint; from any thread."""
        soon = time.monotonic() + NEWS_SECONDS
        if run.beat_at > soon:
            run.beat_at = soon
            self._hasten(soon)

    def _hasten(self, at: float) -> None:
        with self._lock:
            if at >= self._due:
                return
            self._due = at
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: the thread has ended
                self._loop.call_soon_threadsafe(self._wake.set)

    # ---------------------------------------------------------------------------------------------------- the thread
    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:
            log.critical("the heartbeat thread ended", exc_info=error)
            with contextlib.suppress(RuntimeError):  # the worker's loop is closed: it has left
                self._worker_loop.call_soon_threadsafe(self._died, error)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        listening = self._loop.create_task(self._listen())
        while not self._ending:
            self._wake.clear()
            due, pause = self._look(time.monotonic())
            if due:
                try:
                    await self._beat(due)
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see the module's third paragraph
                    self._missed(due, error)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
        listening.cancel()
        if self._own_connection:
            await self._service.close()

    async def _listen(self) -> None:
        """Beat at once where the server says so. A nudge that is missed costs time only."""
        while True:
            try:
                nudged = set((await self._service.nudge(Nudge(self._incarnation))).task_ids)
            except Exception as error:  # noqa: BLE001 - the heartbeats say in the log what is wrong with the server
                log.debug("nudges are not heard: %s", error)
                await asyncio.sleep(NUDGE_RETRY_SECONDS)
            else:
                self._beat_now(nudged)

    def _beat_now(self, task_ids: set[str]) -> None:
        now = time.monotonic()
        with self._lock:
            runs = [run for run in self._runs.values() if run.delivery.task_id in task_ids]
        for run in runs:
            if run.delivery.turn is None:
                run.beat_at = now
            else:
                run.messages = True
        if runs:
            self._hasten(now)

    def _look(self, now: float) -> tuple[list[Run], float]:
        """The runs to beat for now, with those whose turn comes soon anyway, or none and the seconds until one is
        due."""
        with self._lock:
            runs = list(self._runs.values())
            self._due = min((run.beat_at for run in runs), default=now + _FOREVER)
        if self._due > now:
            return [], self._due - now
        soon = now + self._interval / 2
        due = [run for run in runs if run.beat_at <= (soon if run.acknowledged else now)]
        return _within_a_request(due), 0.0

    async def _beat(self, runs: list[Run]) -> None:
        news = [(run.ctx.pending_progress, run.ctx.pending_checkpoint) for run in runs]
        beats = [
            Beat(
                run.delivery.lease,
                None if progress is run.sent_progress else progress,
                None if checkpoint is run.sent_checkpoint else checkpoint,
            )
            for run, (progress, checkpoint) in zip(runs, news, strict=True)
        ]
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                reply = await self._service.heartbeat(Heartbeat(self._incarnation, beats))
        except InvalidArgument as refusal:
            await self._search(runs, news, refusal)
            return
        if not self._healthy:
            self._healthy = True
            log.info("heartbeats are answered again")
        self.answered_at = now = time.monotonic()
        for run, (progress, checkpoint), action in zip(runs, news, reply.actions, strict=True):
            run.acknowledged = True
            if action != "lost":
                run.heard_at = now
            run.sent_progress, run.sent_checkpoint = progress, checkpoint
            run.beat_at = now + min(self._interval, run.delivery.lease_seconds / 3)
            if run.has_news():  # given while the request was under way
                self.changed(run)
            if (action == "lost" or (action == "cancel" and not run.ended)) and run.stop(action):
                self._worker_loop.call_soon_threadsafe(self._stopped, run)

    async def _search(self, runs: list[Run], news: list[News], refusal: InvalidArgument) -> None:
        """One beat spoils the request: halve until it is alone, so that no lease ends for what another handler gave.
        Its news is dropped, and its next beat goes without."""
        if len(runs) > 1:
            middle = len(runs) // 2
            await self._beat(runs[:middle])
            await self._beat(runs[middle:])
            return
        (run,), ((progress, checkpoint),) = runs, news
        if progress is run.sent_progress and checkpoint is run.sent_checkpoint:
            self._missed(runs, refusal)  # and not raised: the other half must be sent
            return
        item = run.delivery
        log.error("task %s (%s): the server refused its progress or checkpoint: %s", item.type, item.task_id, refusal)
        run.sent_progress, run.sent_checkpoint = progress, checkpoint
        await self._beat(runs)

    def _missed(self, runs: list[Run], error: BaseException) -> None:
        """Try again soon. Whether the leases are lost is for the server to say: it waits for the living after an
        outage."""
        again = time.monotonic() + _RETRY_SECONDS
        for run in runs:
            run.beat_at = again
        log.log(
            logging.WARNING if self._healthy else logging.DEBUG,
            "a heartbeat for %d leases was not answered: %s",
            len(runs),
            str(error) or type(error).__name__,
            exc_info=None if isinstance(error, (PerdureError, TimeoutError)) else error,
        )
        self._healthy = False


def _within_a_request(runs: list[Run]) -> list[Run]:
    """As many as their checkpoints allow, those that are late first; the others stay due."""
    room = _REQUEST_BYTES
    fitting: list[Run] = []
    for run in sorted(runs, key=lambda run: run.beat_at):
        checkpoint = run.ctx.pending_checkpoint
        room -= 100 + (len(checkpoint[0].data) if checkpoint and checkpoint is not run.sent_checkpoint else 0)
        if room < 0 and fitting:
            break
        fitting.append(run)
    return fitting
