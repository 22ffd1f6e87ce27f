"""`perdure keys`: API keys. A server with a key in its store admits only callers that have one."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from perdure import app as perdure
from perdure.cli.store import StoreOption, need_file, using

cli = typer.Typer(help="API keys of a store.", no_args_is_help=True)


@cli.command()
def create(
    store: StoreOption,
    namespace: Annotated[str, typer.Option(help="What the key gives access to.")] = "default",
    label: Annotated[str, typer.Option(help="For people: whose key it is.")] = "",
) -> None:
    """Make an API key and print it: this once, only its hash is stored.

    Example: perdure keys create --store sqlite:///jobs.db --namespace shop
    """
    with using(store):
        key = asyncio.run(perdure.make_api_key(store, namespace, label))
    print(key)


@cli.command("list")
def list_keys(store: StoreOption, json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Show the start of each key's hash, and its namespace.

    Example: perdure keys list --store sqlite:///jobs.db
    """
    need_file(store)
    with using(store):
        keys = asyncio.run(perdure.api_keys(store))
    if json:
        found = [{"hash": start, "namespace": namespace} for start, namespace in keys.items()]
        print(msgspec.json.encode(found).decode())
        return
    for start, namespace in keys.items():
        print(f"{start}  {namespace}")
