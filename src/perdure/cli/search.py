"""`perdure search-attributes`: which search attributes of workflows queries may name; and what `count` prints. See
exits.py for exit statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json, show_table
from perdure.core.search_messages import CountReply

cli = typer.Typer(help="Register search attributes of workflows, for queries to name.", no_args_is_help=True)

Query = Annotated[
    str, typer.Option("--query", help="As in docs/search.md, such as \"TaskQueue = 'mail' AND Attempt > 2\".")
]


class AttributeType(StrEnum):
    """How values are compared."""

    KEYWORD = "Keyword"
    INT = "Int"
    DOUBLE = "Double"
    BOOL = "Bool"
    DATETIME = "Datetime"
    KEYWORD_LIST = "KeywordList"
    TEXT = "Text"


Name = Annotated[str, typer.Argument(help="Of the search attribute.")]


@cli.command("list")
@spread
def list_attributes(*, whom: Whom, json: Json = False) -> None:
    """Show the search attributes that queries may name.

    Example: perdure search-attributes list
    """
    found = call(whom, lambda app: app.search_attributes())
    if json:
        show_json({"search_attributes": [{"name": name, "type": type} for name, type in found.items()]})
    else:
        show_table(("name", "type"), list(found.items()))


@cli.command()
@spread
def add(
    name: Name,
    type: Annotated[AttributeType, typer.Argument(case_sensitive=False, help="How its values are compared.")],
    *,
    whom: Whom,
    json: Json = False,
) -> None:
    """Let queries name a search attribute. Runs that have it are found at once.

    Example: perdure search-attributes add customer_tier Keyword
    """
    call(whom, lambda app: app.add_search_attribute(name, type.value))
    show_json({"name": name, "type": type.value}) if json else print(f"queries may name {name}")


@cli.command()
@spread
def remove(name: Name, *, whom: Whom, json: Json = False) -> None:
    """Let queries name it no more; runs keep what they have.

    Example: perdure search-attributes remove customer_tier
    """
    call(whom, lambda app: app.remove_search_attribute(name))
    show_json({"name": name}) if json else print(f"queries may not name {name} any more")


def show_count(found: CountReply, *, json: bool) -> None:
    """For people a number, with a plus where there may be more."""
    show_json(found) if json else print(f"{found.count}{'+' if found.at_least else ''}")
