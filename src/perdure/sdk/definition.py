"""What a worker knows of a workflow: its code, its name, its options and the handlers that its class declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, NamedTuple

from perdure.core.errors import InvalidArgument
from perdure.core.model import RetryPolicy
from perdure.sdk import hints
from perdure.sdk.handlers import Handler
from perdure.sdk.hints import ANY, Hint
from perdure.sdk.task import R, place

WORKFLOWS: dict[str, Workflow] = {}
"""Every workflow of this process by name; what a worker runs unless it is told otherwise."""

MARK = "__perdure_handler__"
"""The attribute of a decorated method."""


class Declared(NamedTuple):
    """What a decorated method of a class is."""

    kind: str  #: "signals", "queries", "updates"
    name: str
    validator: list[Callable[..., Any]]  #: at most one


class Bound(NamedTuple):
    """A workflow that begins: what to call with `(ctx, payload)` or `(ctx)`, and the handlers it has from the start."""

    run: Callable[..., Any]
    handlers: list[tuple[str, Handler]]  #: with their kind


class Workflow(Generic[R]):
    """A workflow of this process, whose result is an R."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        queue: str = "default",
        retry: RetryPolicy | None = None,
        execution_timeout: float | None = None,
        run_timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self.queue = queue
        self.retry = retry
        self.execution_timeout = execution_timeout
        self.run_timeout = run_timeout
        self._class = inspect.isclass(function)
        self._declared = _declared(function) if inspect.isclass(function) else []
        run = run_of(function)
        self.is_async = inspect.iscoroutinefunction(run)
        parameters = list(inspect.signature(run).parameters.values())[1 if self._class else 0 :]
        self.takes = len(parameters) > 1
        self.payload, self.result = self._hints(run)
        self.__name__ = name
        self.__doc__ = function.__doc__

    def _hints(self, run: Callable[..., Any]) -> tuple[Hint, Hint]:
        if not self._class:
            return hints.of_function(run)
        signature = inspect.signature(run)
        parameters = list(signature.parameters.values())
        payload = parameters[2].annotation if self.takes else inspect.Parameter.empty
        return _hint(payload, run), _hint(signature.return_annotation, run)

    def bind(self) -> Bound:
        """For a new run."""
        if not self._class:
            return Bound(self.function, [])
        made: Any = self.function()
        handlers = []
        for attribute, (kind, name, validator) in self._declared:
            check = validator[0].__get__(made) if validator else None
            handlers.append((kind, Handler.of(name, getattr(made, attribute), check)))
        return Bound(made.run, handlers)

    def __repr__(self) -> str:
        return f"<workflow {self.name} of {place(run_of(self.function))}>"


def run_of(function: Callable[..., Any]) -> Callable[..., Any]:
    run: Callable[..., Any] = getattr(function, "run", function) if inspect.isclass(function) else function
    return run


def _hint(annotation: object, function: Callable[..., Any]) -> Hint:
    if annotation is inspect.Signature.empty:
        return ANY
    return Hint(annotation, getattr(function, "__globals__", None), f"an annotation of {place(function)}")


def _declared(kind: type) -> list[tuple[str, Declared]]:
    found = {}
    for base in reversed(kind.__mro__):
        for attribute, value in vars(base).items():
            declared = getattr(value, MARK, None)
            if declared is not None:
                found[attribute] = declared
            else:
                found.pop(attribute, None)
    return list(found.items())


def check(function: Any) -> None:
    if inspect.isclass(function) and not callable(getattr(function, "run", None)):
        raise TypeError(f"the workflow class {function.__name__} has no method run(self, ctx, payload)")
    run = run_of(function)
    where = f"workflow {getattr(function, '__name__', function)!r} at {place(run)}"
    if inspect.isgeneratorfunction(run) or inspect.isasyncgenfunction(run):
        raise TypeError(f"{where} is a generator; a workflow returns one value")
    owner = (None,) if inspect.isclass(function) else ()
    signature = inspect.signature(run)
    for arguments in ((None, None), (None,)):
        try:
            signature.bind(*owner, *arguments)
        except TypeError:
            continue
        return
    raise TypeError(f"{where} must take (ctx, payload) or (ctx)")


def register(new: Workflow) -> Workflow:
    """The same one loaded twice (as a script and as a module) is no duplicate; the later one is used."""
    known = WORKFLOWS.get(new.name)
    here = place(run_of(new.function))
    if known is not None and place(run_of(known.function)) != here:
        there = place(run_of(known.function))
        raise ValueError(f"two workflows are named {new.name!r}: at {there} and at {here}; give one another name=")
    WORKFLOWS[new.name] = new
    return new


AnyWorkflow = Workflow[Any] | type[Any] | str
"""What tells a workflow. Type checkers take a decorated class for the class that it was."""


def named(target: AnyWorkflow) -> str:
    """The name of a workflow, given itself or its name."""
    if isinstance(target, Workflow):
        return target.name
    if isinstance(target, str) and target:
        return target
    raise InvalidArgument(f"{target!r} is no workflow", field="workflow", limit="a @workflow, or the name of one")
