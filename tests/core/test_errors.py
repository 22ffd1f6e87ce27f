"""Errors come back from their wire form as what they were (API-25)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from perdure.core import errors
from perdure.core.errors import PerdureError, Problem, from_problem
from perdure.core.model import Failure


def below(root: type[PerdureError]) -> Iterator[type[PerdureError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from below(kind)


SENT = [
    kind
    for kind in below(PerdureError)
    if kind.__module__ == errors.__name__ and not issubclass(kind, errors.TaskFailed)
]
"""Not those that carry a failure, nor what other modules, and applications, derive for themselves."""


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_a_problem_comes_back_as_the_error_it_was(kind: type[PerdureError]) -> None:
    error = kind("what happened", field="queue", limit="1 to 255", kind="str", retry_after=1.5)
    wire = msgspec.json.encode(error.problem())
    back = from_problem(msgspec.json.decode(wire, type=Problem))
    assert type(back) is kind
    assert back.problem() == error.problem()
    assert str(back) == "what happened"


@pytest.mark.parametrize("kind", SENT, ids=lambda kind: kind.__name__)
def test_an_error_without_detail_says_its_title(kind: type[PerdureError]) -> None:
    assert str(kind()) == kind.title == kind().problem().detail


def test_codes_are_distinct() -> None:
    codes = [kind.code for kind in below(PerdureError)]
    assert len(codes) == len(set(codes))


def test_statuses_go_with_the_reaction() -> None:
    for kind in below(PerdureError):
        assert 400 <= kind.status < 600
        assert kind.retryable == (kind.status in (429, 503, 504)), kind


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (Problem(code="new_code", title="New", status=503, retryable=True), errors.Unavailable),
        (Problem(code="new_code", title="New", status=500), errors.Internal),
        (Problem(code="new_code", title="New", status=418), errors.Internal),
        (Problem(code="internal", title="Internal error", status=500), errors.Internal),
    ],
)
def test_an_unknown_code_becomes_an_error_of_its_kind(problem: Problem, kind: type[PerdureError]) -> None:
    assert type(from_problem(problem)) is kind


def test_a_failed_task_carries_its_failure() -> None:
    failure = Failure(message="no such user", type="KeyError")
    assert errors.TaskFailed(failure).failure is failure
    assert str(errors.TaskFailed(failure)) == "KeyError: no such user"
    assert str(errors.TaskFailed(Failure(message="gone"))) == "gone"


def test_cancellation_is_not_caught_by_accident() -> None:
    assert not issubclass(errors.Cancelled, Exception)
    assert issubclass(errors.WaitTimeout, TimeoutError)
    assert errors.RetryableError("later", retry_after=3.0).retry_after == 3.0
