"""Options that commands take together, said once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """`command` for typer, which takes options one by one: a parameter whose type is a NamedTuple stands for the
    options that its fields are."""
    taken: list[Parameter] = []
    together: dict[str, Any] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        kind: Any = parameter.annotation
        if hasattr(kind, "_field_defaults"):
            together[name] = kind
            hints = get_type_hints(kind, include_extras=True)
            taken += [
                Parameter(field, Parameter.KEYWORD_ONLY, default=kind._field_defaults[field], annotation=hints[field])
                for field in kind._fields
            ]
        else:
            taken.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in together.items():
            given[name] = kind(*(given.pop(field) for field in kind._fields))
        command(**given)

    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    return run
