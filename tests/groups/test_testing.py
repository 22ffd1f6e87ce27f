"""Groups in tests of applications: perdure.testing."""

from __future__ import annotations

from typing import Any

from perdure import Perdure, task
from perdure.sdk.workflow import workflow
from perdure.testing import jumping


@task(name="groups_testing.double", retries=0)
def double(ctx: Any, number: int) -> int:
    return 2 * number


@workflow
def groups_testing(ctx: Any, count: int) -> int:
    return sum(ctx.map("double", double, range(count), window=150))


def test_a_group_runs_on_the_jumping_clock(tmp_path: Any) -> None:
    app = Perdure(f"sqlite:///{tmp_path}/jobs.db")
    with jumping(app) as env:
        run = app.start_workflow(groups_testing, 450)
        env.run()
        assert run.result() == 450 * 449
