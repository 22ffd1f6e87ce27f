"""Workflows of the workload. Their code is drawn too: an input has a list of operations, and one interpreter carries
them out in both styles. It is a generator of calls, which an async workflow awaits and a plain one just makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from perdure.core.errors import Cancelled
from perdure.core.model import RetryPolicy
from perdure.sdk.definition import Workflow
from perdure.sdk.logs import RUNNING
from perdure.sdk.workflow_errors import STOPPED, ForbiddenError, OperationError
from tests.sim.threads import strand

if TYPE_CHECKING:
    from tests.sim.world import World

Calls = Generator[Callable[[], Any], Any, None]
SIGNAL = "s"
"""The signal that is noted when it comes; "w" is waited for."""
_TRIED = RetryPolicy(max_attempts=3, base=0.05, cap=2.0)


class Book:
    """What a run has noted: all the state that its code has."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.seen: list[str] = list(given["seen"])  #: signals, in the order in which they came
        self.waited: list[str] = []
        self.updated: list[int] = []
        self.log: list[Any] = []

    def shown(self) -> dict[str, Any]:
        return {
            "n": self.given["n"],
            "seen": list(self.seen),
            "waited": list(self.waited),
            "updated": list(self.updated),
            "log": list(self.log),
        }


class Story:
    """One run of the code."""

    def __init__(self, world: World, ctx: Any, given: dict[str, Any], *, is_async: bool) -> None:
        self._world = world
        self._ctx = ctx
        self._async = is_async
        self.book = Book(given)
        self._listen()

    def _listen(self) -> None:
        ctx, book = self._ctx, self.book
        ctx.on_signal(SIGNAL, book.seen.append)
        ctx.on_query("state", book.shown)

        def check(value: int) -> None:
            if value % 5 == 0:
                raise ValueError("rejected")

        async def slowly(value: int) -> dict[str, int]:
            book.updated.append(value)
            if value % 2:
                await ctx.step("update", self._step(value), value, 0, 0.01)
            return {"n": value}

        def at_once(value: int) -> dict[str, int]:
            book.updated.append(value)
            if value % 3 == 0:
                ctx.step("update", self._step(0), value, 0, 0.0)
            return {"n": value}

        ctx.on_update("add", slowly if self._async else at_once, check)

    def _step(self, number: int) -> Callable[..., Any]:
        steps = self._world.steps
        return steps.waiting if self._async and number % 2 else steps.plain

    # ---------------------------------------------------------------------------------------------------------- whole
    def whole(self) -> Calls:
        """All of it; the value of the workflow is what the book shows."""
        ctx, given = self._ctx, self.book.given
        try:
            yield from self.part(given["ops"])
            yield from self._rest()
        except STOPPED:
            self.book.log.append("canceled")
            if given["stubborn"]:
                return
            with ctx.shielded():
                yield lambda: ctx.step("clean up", self._world.steps.plain, 0, 0, 0.0)
            raise

    def _rest(self) -> Calls:
        """Plain code hears of signals where it waits, and nowhere else."""
        if not self._async:
            yield lambda: self._ctx.sleep(0.001)

    def part(self, ops: list[Any]) -> Calls:
        for op in ops:
            try:
                yield from getattr(self, f"_{op[0]}")(*op[1:])
            except OperationError as error:
                self.book.log.append([op[0], error.failure.code])

    def _note(self, what: str, value: Any) -> None:
        self.book.log.append([what, value])

    # ----------------------------------------------------------------------------------------------------- operations
    def _work(self, number: int, fails: int, seconds: float) -> Calls:
        value = yield lambda: self._ctx.step(
            f"work{number % 3}", self._step(number), number, fails, seconds, retries=_TRIED
        )
        self._note("step", value)

    def _act(self, spec: dict[str, Any], options: dict[str, Any]) -> Calls:
        options = options | {"retries": RetryPolicy(max_attempts=options["retries"], base=0.05, cap=1.0)}
        value = yield lambda: self._ctx.execute_activity(spec.get("type", "work"), spec, **options)
        self._note("activity", value["n"])

    def _call_off(self, spec: dict[str, Any], seconds: float) -> Calls:
        """An activity that is canceled after a while."""
        handle = self._ctx.start_activity("work", spec, start_to_close=60.0)
        yield lambda: self._ctx.sleep(seconds)
        handle.cancel()
        value = yield lambda: handle.result()
        self._note("activity", value["n"])

    def _sleep(self, seconds: float) -> Calls:
        yield lambda: self._ctx.sleep(seconds)
        self._note("slept", seconds)

    def _hear(self, seconds: float) -> Calls:
        value = yield lambda: self._ctx.wait_for_signal("w", seconds)
        if value is not None:
            self.book.waited.append(value)

    def _until(self, count: int, seconds: float) -> Calls:
        book = self.book
        met = yield lambda: self._ctx.wait_condition(lambda: len(book.seen) >= count, seconds)
        self._note("met", met)

    def _tell(self, workflow_id: str, name: str, number: int) -> Calls:
        """The signal is named by who sends it, so that it is another one for every run."""
        text = f"{self._ctx.info.run_id[-8:]}/{number}"
        yield lambda: self._ctx.signal_workflow(workflow_id or self._ctx.info.workflow_id, name, text)
        self._note("told", text)

    def _stop(self, workflow_id: str) -> Calls:
        yield lambda: self._ctx.cancel_workflow(workflow_id)

    def _child(self, name: str, given: dict[str, Any], options: dict[str, Any]) -> Calls:
        value = yield lambda: self._ctx.execute_child(name, given, **options)
        self._note("child", value["n"])

    def _begin(self, name: str, given: dict[str, Any], options: dict[str, Any]) -> Calls:
        """A child that is not waited for."""
        handle = yield lambda: self._ctx.start_child(name, given, **options)
        self._note("child", handle.workflow_id if "workflow_id" in options else "")

    def _many(self, numbers: list[int], policy: str) -> Calls:
        """Steps at once, in either style."""
        branches = [(self._step(number), number, 0, 0.02 * (number % 4)) for number in numbers]
        value = yield lambda: self._ctx.parallel("many", branches, policy=policy, retries=1)
        self._note("many", value)

    def _fan(self, specs: list[dict[str, Any]], policy: str, window: int | None) -> Calls:
        """Calls of a task at once, whose errors may stand among the results."""
        task, tried = self._world.tasks[0], RetryPolicy(max_attempts=2, base=0.05, cap=1.0)
        found = yield lambda: self._ctx.map("fan", task, specs, policy=policy, retries=tried, timeout=60, window=window)
        self._note("fan", [one.failure.code if isinstance(one, OperationError) else one["n"] for one in found])

    def _together(self, parts: list[list[Any]]) -> Calls:
        """Async code does them at once, plain code one after the other."""
        if not self._async:
            for ops in parts:
                yield from self.part(ops)
            return
        yield lambda: asyncio.gather(*(_async(self.part(ops)) for ops in parts))

    def _race(self, parts: list[list[Any]]) -> Calls:
        if not self._async:
            yield from self.part(parts[0])
            return
        tasks = [asyncio.ensure_future(_async(self.part(ops))) for ops in parts]
        try:
            yield lambda: asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        yield lambda: asyncio.gather(*tasks, return_exceptions=True)

    def _notes(self, number: int) -> Calls:
        ctx = self._ctx
        self._note("side", ctx.side_effect(lambda: number))
        self._note("random", ctx.random().random())
        self._note("uuid", str(ctx.uuid4()))
        self._note("version", ctx.version(f"v{number % 2}"))
        self._note("now", ctx.now().isoformat())
        ctx.upsert_memo({"n": number})
        ctx.upsert_search_attributes({"n": number})
        yield from ()

    def _crash(self, number: int, turns: int) -> Calls:
        """A fault of the code, which is mended after so many turns."""
        self._world.steps.crash(self._ctx.info.run_id, number, turns)
        yield from ()

    def _fail(self) -> Calls:
        yield from ()
        raise ValueError("as planned")

    def _again(self, ops: list[Any], other: str | None) -> Calls:
        """Continue as new, with what was seen so far, and maybe as another workflow."""
        yield from self._rest()
        book = self.book
        given = book.given | {"ops": ops, "seen": list(book.seen), "waited": list(book.waited)}
        self._ctx.continue_as_new(given, workflow=other)


class Steps:
    """What the steps of all workflows do, and who has run which."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._crashes: dict[tuple[str, int], int] = {}
        self.replaying = False  #: somebody looks what the code would do

    def crash(self, run_id: str, number: int, turns: int) -> None:
        left = self._crashes.setdefault((run_id, number), turns)
        if left and not self.replaying:
            self._crashes[run_id, number] = left - 1
            raise ForbiddenError("not mended yet")

    def _begin(self, number: int, fails: int) -> None:
        ctx = RUNNING.get()
        assert ctx is not None
        self._world.runs.executed(ctx.task_id, ctx.attempt)
        if ctx.attempt <= fails:
            raise ValueError("flaky")

    async def waiting(self, number: int, fails: int, seconds: float) -> int:
        self._begin(number, fails)
        await asyncio.sleep(seconds)
        return number

    def plain(self, number: int, fails: int, seconds: float) -> int:
        self._begin(number, fails)
        if seconds:
            strand().sleep(seconds)
        return number


async def _async(calls: Calls) -> None:
    """What async code does with them."""
    advance: Callable[[Any], Callable[[], Any]] = calls.send
    given: Any = None
    while True:
        try:
            call = advance(given)
        except StopIteration:
            return
        try:
            advance, given = calls.send, await call()
        except BaseException as error:  # noqa: BLE001 - for the code, which raises it again
            advance, given = calls.throw, error


def _plain(calls: Calls) -> None:
    """What plain code does with them."""
    advance: Callable[[Any], Callable[[], Any]] = calls.send
    given: Any = None
    while True:
        try:
            call = advance(given)
        except StopIteration:
            return
        try:
            advance, given = calls.send, call()
        except BaseException as error:  # noqa: BLE001 - for the code, which raises it again
            advance, given = calls.throw, error


def workflows(world: World) -> list[Workflow]:
    """One of each style; `given` says what a run does."""

    async def waits(ctx, given):  # type: ignore[no-untyped-def]  # hints would be read as types of payloads
        story = Story(world, ctx, given, is_async=True)
        await _async(story.whole())
        return story.book.shown()

    def blocks(ctx, given):  # type: ignore[no-untyped-def]
        story = Story(world, ctx, given, is_async=False)
        _plain(story.whole())
        return story.book.shown()

    return [
        Workflow(waits, "waits", "default", None, None, None),
        Workflow(blocks, "blocks", "default", None, None, None),
    ]


__all__ = ["SIGNAL", "Cancelled", "Steps", "Story", "workflows"]
