"""What type checkers say of results: the package has its types (py.typed), and handles know what a function returns."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]

PROGRAM = """
from typing import Any

from perdure import AsyncPerdure, Context, Perdure, task, workflow


@task
def length(ctx: Context, payload: str) -> int:
    return len(payload)


@task(queue="mail", retries=3)
async def greet(ctx: Context, name: str) -> str:
    return name


@workflow
def count(ctx: Any, payload: list[str]) -> int:
    return len(payload)


@workflow(name="later", queue="slow")
async def wait(ctx: Any, payload: None) -> list[str]:
    return []


@workflow
class Cart:
    async def run(self, ctx: Any) -> bytes:
        return b""


app = Perdure("sqlite:///x.db")
reveal_type(app.enqueue(length, "a").result())
reveal_type(app.enqueue(greet, "a").result())
reveal_type(app.execute(greet, "a"))
reveal_type(app.enqueue_many(length, ["a"])[0].result())
reveal_type(app.enqueue("elsewhere").result())
reveal_type(app.job("id", length).result())
reveal_type(app.start_workflow(count, []).result())
reveal_type(app.execute_workflow(wait))
reveal_type(app.get_workflow_handle("id", workflow=Cart).result())
reveal_type(app.start_workflow("elsewhere").result())
reveal_type(length(Context.__new__(Context), "a"))


async def main(app: AsyncPerdure) -> None:
    reveal_type(await app.execute(length, "a"))
    reveal_type(await (await app.start_workflow(Cart)).result())
    reveal_type(await greet(Context.__new__(Context), "a"))
    app.enqueue(length, "a").results()
"""

# What a decorator makes of a class is not looked at by mypy, so the results of such workflows are Any.
FOUND = [
    "int", "str", "str", "int", "Any", "int", "int", "list[str]", "Any", "Any", "int", "int", "Any", "str",
]  # fmt: skip


def test_results_have_the_types_of_their_functions(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = ["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "program.py")]
    told, errors, status = api.run(arguments)
    revealed = re.findall(r'Revealed type is "(?:builtins\.)?(.*?)"', told)
    assert [kind.replace("builtins.", "") for kind in revealed] == FOUND, told + errors
    assert '"results"' in told and told.count(": error:") == 1, told
    assert status == 1


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "src" / "perdure" / "py.typed").read_bytes() == b""
