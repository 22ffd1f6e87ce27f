"""`perdure keys`: API keys. A server with a key in its store admits only callers that have one."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from perdure import app as perdure

cli = typer.Typer(help="API keys of a store.", no_args_is_help=True)

StoreOption = Annotated[str, typer.Option(envvar="PERDURE_STORE", help="sqlite:///FILE or postgresql://...")]


@cli.command()
def create(
    store: StoreOption,
    namespace: Annotated[str, typer.Option(help="What the key gives access to.")] = "default",
    label: Annotated[str, typer.Option(help="For people: whose key it is.")] = "",
) -> None:
    """Make an API key and print it: this once, only its hash is stored.

    Example: perdure keys create --store sqlite:///jobs.db --namespace shop
    """
    print(asyncio.run(perdure.make_api_key(store, namespace, label)))


@cli.command("list")
def list_keys(store: StoreOption) -> None:
    """Show the start of each key's hash, and its namespace.

    Example: perdure keys list --store sqlite:///jobs.db
    """
    for start, namespace in asyncio.run(perdure.api_keys(store)).items():
        print(f"{start}  {namespace}")
