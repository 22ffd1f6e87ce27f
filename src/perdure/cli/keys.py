"""`perdure keys`: API keys. A server with a key in its store admits only callers that have one."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from perdure import database
from perdure.cli.ask import Json
from perdure.cli.show import moment, show_json, show_table, time
from perdure.cli.store import StoreOption, need_file, using

START = 16
"""Characters of a key's hash that are shown: enough to name it, of no use to a thief."""

cli = typer.Typer(help="Make, list and revoke the API keys of a store.", no_args_is_help=True)


@cli.command()
def create(
    store: StoreOption,
    namespace: Annotated[str, typer.Option(help="What the key gives access to.")] = "default",
    label: Annotated[str, typer.Option(help="For people: whose key it is.")] = "",
    json: Json = False,
) -> None:
    """Make an API key and print it: this once, only its hash is stored.

    Example: perdure keys create --store sqlite:///jobs.db --namespace shop --label "order service"
    """
    with using(store):
        key = asyncio.run(database.make_api_key(store, namespace, label))
    show_json({"key": key, "namespace": namespace, "label": label}) if json else print(key)


@cli.command("list")
def list_keys(store: StoreOption, json: Json = False) -> None:
    """Show the start of each key's hash, its namespace, when it was made, and its label.

    Example: perdure keys list --store sqlite:///jobs.db
    """
    need_file(store)
    with using(store):
        keys = asyncio.run(database.api_keys(store))
    if json:
        show_json([_shown(key) | {"created_at": moment(key.created_at)} for key in keys])
        return
    rows = [(key.hash.hex()[:START], key.namespace, time(moment(key.created_at)), key.label) for key in keys]
    show_table(("hash", "namespace", "created", "label"), rows)


@cli.command()
def revoke(
    key: Annotated[str, typer.Argument(help="The start of its hash, as `perdure keys list` shows it.")],
    store: StoreOption,
    json: Json = False,
) -> None:
    """Revoke an API key. Servers refuse it within a second and close its connections.

    Example: perdure keys revoke 3f1c9a0b7d2e4f68 --store sqlite:///jobs.db
    """
    need_file(store)
    with using(store):
        gone = asyncio.run(database.revoke_api_key(store, key))
        left = len(asyncio.run(database.api_keys(store)))
    if json:
        show_json(_shown(gone) | {"left": left})
    else:
        print(f"revoked {gone.hash.hex()[:START]} of namespace {gone.namespace}{gone.label and f', {gone.label}'}")
    if not left:
        print(
            "no API key is left: a server that is started now asks for none, and listens on this machine only",
            file=sys.stderr,
        )


def _shown(key: database.ApiKey) -> dict[str, Any]:
    return {"hash": key.hash.hex()[:START], "namespace": key.namespace, "label": key.label}
