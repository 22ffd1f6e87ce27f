"""Options that commands take together."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer
from typer.testing import CliRunner

from perdure.cli.options import spread


class Size(NamedTuple):
    width: Annotated[int, typer.Option(min=1)] = 2
    height: Annotated[int, typer.Option("--tall")] = 3


def test_a_named_tuple_stands_for_the_options_that_its_fields_are() -> None:
    cli = typer.Typer()
    seen: list[object] = []

    @cli.command()
    @spread
    def draw(name: str, size: Size, color: str = "red", *, loud: bool = False) -> None:
        """Draw something."""
        seen.append((name, size, color, loud))

    run = CliRunner().invoke
    assert run(cli, ["box"]).exit_code == 0
    assert run(cli, ["box", "--tall", "5", "--width", "4", "--color", "blue", "--loud"]).exit_code == 0
    assert seen == [("box", Size(2, 3), "red", False), ("box", Size(4, 5), "blue", True)]
    assert run(cli, ["box", "--width", "0"]).exit_code == 2
    shown = run(cli, ["--help"]).output
    assert "Draw something." in shown
    assert "--size" not in shown
