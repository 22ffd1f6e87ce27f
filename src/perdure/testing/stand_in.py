"""Functions of a test that stand in for tasks and workflows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from perdure.core.errors import InvalidArgument
from perdure.sdk.definition import WORKFLOWS, AnyWorkflow, Workflow, check
from perdure.sdk.task import REGISTRY, Task


class StandIns:
    """Those of one environment. `undo` makes all as it was."""

    def __init__(self) -> None:
        self._undo = ExitStack()

    def put(self, target: Task[..., Any] | AnyWorkflow, function: Callable[..., Any]) -> None:
        """See Environment.replace."""
        if isinstance(target, str):
            target = REGISTRY.get(target) or WORKFLOWS.get(target) or Task(function, target)
        if isinstance(target, Workflow):
            check(function)
            self._enter(WORKFLOWS, Workflow(function, target.name, target.queue))
        elif isinstance(target, Task):
            self._change(target, function)
            self._enter(REGISTRY, target)
        else:
            limit = "a @task, a @workflow, or the name of one"
            raise InvalidArgument(f"{target!r} cannot be replaced; it is not {limit}", field="target", limit=limit)

    def undo(self) -> None:
        self._undo.close()

    def _enter(self, registry: dict[str, Any], new: Any) -> None:
        before = registry.get(new.name)
        registry[new.name] = new
        if before is None:
            self._undo.callback(registry.pop, new.name)
        else:
            self._undo.callback(registry.__setitem__, new.name, before)

    def _change(self, task: Task[..., Any], function: Callable[..., Any]) -> None:
        """The task itself, because steps name it, and not by its name. Its types stay what they are."""
        before = (task.function, task.is_async, task.process)
        self._undo.callback(self._set, task, *before)
        self._set(task, function, inspect.iscoroutinefunction(function), False)

    @staticmethod
    def _set(task: Task[..., Any], function: Callable[..., Any], is_async: bool, process: bool) -> None:
        task.function, task.is_async, task.process = function, is_async, process
