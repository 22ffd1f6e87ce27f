"""`perdure replay`: are histories of runs compatible with the code that is about to go on with them?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.app import AsyncPerdure
from perdure.cli.ask import LOCAL, ApiKey, Json, Namespace, Whom, call
from perdure.cli.exits import USAGE
from perdure.cli.load import load
from perdure.cli.show import show_json
from perdure.core.errors import PerdureError
from perdure.sdk.failure import to_failure
from perdure.sdk.history import WorkflowHistory
from perdure.sdk.workflow_errors import NonDeterminismError


@dataclass(frozen=True)
class Verdict:
    """What came of one history. It could not even be replayed where it is not known whether it is `compatible`."""

    history: str  #: the file, or the workflow id
    compatible: bool | None
    workflow: str = ""
    workflow_id: str = ""
    run_id: str = ""
    events: int = 0
    event_id: int | None = None
    expected: str = ""
    found: str = ""
    file: str = ""
    line: int | None = None
    error: str = ""  #: in one line

    def __str__(self) -> str:
        what = f"{self.workflow} {self.workflow_id}, {self.events} events"
        if self.compatible:
            return f"{self.history}: compatible: {what}"
        if self.event_id is None:
            return f"{self.history}: {self.error}"
        where = f"\n  at        {self.file}:{self.line}" if self.file else ""
        return (
            f"{self.history}: differs at event {self.event_id}: {what}\n"
            f"  expected  {self.expected}\n"
            f"  found     {self.found}{where}"
        )


def replay(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[HISTORY.json]... APP",
            help="Files of `perdure workflows history ID --json`; then app.py, or a module.",
        ),
    ],
    workflow_id: Annotated[list[str] | None, typer.Option(help="Ask a server for this one; may be repeated.")] = None,
    run_id: Annotated[str | None, typer.Option(help="One certain run; the current one without it.")] = None,
    server: Annotated[
        str, typer.Option("--server", "--url", envvar="PERDURE_SERVER", help="URL of the server, or of a store.")
    ] = LOCAL,
    api_key: ApiKey = None,
    namespace: Namespace = None,
    json: Json = False,
) -> None:
    """Replay histories with the workflows of an application: "compatible", or the exact place where the code differs.

    Nothing is run but workflow code, and nothing changes. The exit status is 1 when the code differs from a history,
    and 2 when a history or the application cannot be loaded.

    Example: perdure replay history.json app.py
    """
    *files, target = arguments
    wanted = workflow_id or []
    if target.endswith(".json") or not (files or wanted):
        raise typer.BadParameter("name histories, or --workflow-id, and then the application: history.json app.py")

    async def fetch(app: AsyncPerdure) -> list[WorkflowHistory]:
        return [await app.get_workflow_handle(id, run_id).history() for id in wanted]

    fetched = call(Whom(server, api_key, namespace), fetch) if wanted else []
    _, found = load(target)
    app = AsyncPerdure("sqlite:///:memory:", **(found.extensions if found is not None else {}))
    verdicts = []
    for verdict in _verdicts(app, [(file, Path(file)) for file in files] + list(zip(wanted, fetched, strict=True))):
        verdicts.append(verdict)
        if not json:
            print(verdict, file=sys.stderr if verdict.compatible is None else sys.stdout)
    compatible = [verdict.compatible for verdict in verdicts]
    if json:
        show_json({"compatible": all(compatible), "histories": [vars(verdict) for verdict in verdicts]})
    if None in compatible:
        raise typer.Exit(USAGE)
    if False in compatible:
        raise typer.Exit(1)


def _verdicts(app: AsyncPerdure, histories: list[tuple[str, Any]]) -> Iterator[Verdict]:
    replayer = app.replayer()
    for name, history in histories:
        try:
            replayed = replayer.replay(history)
        except (PerdureError, OSError) as fault:
            text = fault.detail if isinstance(fault, PerdureError) else f"cannot be read: {fault.strerror}"
            yield Verdict(name, None, error=text)
            continue
        error = replayed.error
        known = (replayed.workflow.name, replayed.history.workflow_id, replayed.history.run_id)
        count = len(replayed.history.events)
        if error is None:
            yield Verdict(name, True, *known, count)
        elif isinstance(error, NonDeterminismError):
            differs = (error.event_id, error.expected, error.found)
            file, line = _near(error.file), error.line or None
            yield Verdict(name, False, *known, count, *differs, file=file, line=line, error=str(error))
        else:
            failure = to_failure(error)
            yield Verdict(name, False, *known, count, error=f"{failure.type}: {failure.message}")


def _near(file: str) -> str:
    """As seen from the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if file and path.is_relative_to(Path.cwd()) else file
