"""Mistakes in the rules of groups, each of which the random lives of test_rules.py must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from perdure.core import decide, groups
from perdure.core.effects import Arrive
from perdure.core.groups import Step
from perdure.core.model import pack
from tests.groups.test_rules import GroupLife

QUICK = settings(
    max_examples=300,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def _with(task: Any, effects: list[Any], **fields: Any) -> list[Any]:
    """The effects, with other values in the group."""
    for effect in effects:
        row = getattr(effect, "task", None)
        if row is not None and row.id == task.id:
            group = groups.group_of(row)
            for name, value in fields.items():
                setattr(group, name, value)
            groups._keep(row, group, row.updated_at)
    return effects


def bit_lost(real: Callable[..., Any]) -> Callable[..., Any]:
    def ended(task: Any, call: Any, now: int) -> Any:
        return [] if call.parent_event_id == 3 else real(task, call, now)

    return ended


def bit_counted_twice(real: Callable[..., Any]) -> Callable[..., Any]:
    def ended(task: Any, call: Any, now: int) -> Any:
        return _with(task, real(task, call, now), ended=groups.group_of(task).ended)

    return ended


def result_lost(real: Callable[..., Any]) -> Callable[..., Any]:
    def ended(task: Any, call: Any, now: int) -> Any:
        return [effect for effect in real(task, call, now) if not isinstance(effect, Arrive) or effect.number % 5]

    return ended


def told_twice(real: Callable[..., Any]) -> Callable[..., Any]:
    def told(task: Any, now: int) -> Any:
        fatal = groups.group_of(task).fatal
        return _with(task, real(task, now), told=False, fatal=fatal)

    return told


def told_too_early(real: Callable[..., Any]) -> Callable[..., Any]:
    def step_of(group: Any) -> Any:
        almost = group.done == group.count - 1 and not group.told and not group.over
        return Step.TELL if almost else real(group)

    return step_of


def window_exceeded(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda group: min(group.count - group.inserted, real(group) + 1) if real(group) else 0


def window_leaks(real: Callable[..., Any]) -> Callable[..., Any]:
    """What has ended is not made up for."""
    return lambda group: (
        min(group.count - group.inserted, group.window - group.inserted) if group.window else real(group)
    )


def inserted_after_the_end(real: Callable[..., Any]) -> Callable[..., Any]:
    def step_of(group: Any) -> Any:
        found = real(group)
        return Step.INSERT if found == Step.STOP and groups.room(group) > 0 else found

    return step_of


def stopped_over_what_is_held(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda task, calls, *, whole, last, now: real(task, calls, whole=True, last=last, now=now)


def same_input_again(real: Callable[..., Any]) -> Callable[..., Any]:
    def inputs_from(page: Any, group: Any) -> Any:
        return real(page, group)[:1] * 2 + real(page, group)[2:]

    return inputs_from


def failure_is_collected(real: Callable[..., Any]) -> Callable[..., Any]:
    def ended(task: Any, call: Any, now: int) -> Any:
        group = groups.group_of(task)
        group.collect = True
        task = decide.own(task, now)[0]
        task.checkpoint = pack(group)
        return _with(task, real(task, call, now), collect=False)

    return ended


MUTANTS: list[tuple[str, Callable[..., Any]]] = [
    ("ended", bit_counted_twice),
    ("ended", bit_lost),
    ("ended", failure_is_collected),
    ("ended", result_lost),
    ("inputs_from", same_input_again),
    ("room", window_exceeded),
    ("room", window_leaks),
    ("step_of", inserted_after_the_end),
    ("step_of", told_too_early),
    ("stopped", stopped_over_what_is_held),
    ("told", told_twice),
]


@pytest.mark.parametrize(("name", "mutant"), MUTANTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_mistake_is_found(name: str, mutant: Callable[..., Any]) -> None:
    with patch.object(groups, name, mutant(getattr(groups, name))), pytest.raises(Exception):  # noqa: B017
        run_state_machine_as_test(GroupLife, settings=QUICK)
