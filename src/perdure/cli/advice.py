"""What to do about an error, for a person who reads it at night: one or two sentences for each kind."""

from __future__ import annotations

from perdure.core import errors as e

_BY_FIELD: dict[tuple[type[e.PerdureError], str], str] = {
    (e.Unavailable, "server"): (
        "Start one with `perdure server --store URL`, or name the one you mean: --server URL or PERDURE_SERVER."
    ),
    (e.Unavailable, "store"): (
        "See that the database runs, that this machine reaches it, and that user, password and path in the URL are "
        "right. Nothing was changed."
    ),
    (e.Unavailable, "database"): (
        "See that the server's database runs and has room on its disk; the server's log says what it answered. The "
        "server needs no restart."
    ),
    (e.NotFound, "task_id"): (
        "Look for it with `perdure tasks list`. It may be of another namespace (--namespace, or another API key) or of "
        "another server (--server)."
    ),
    (e.NotFound, "workflow_id"): (
        "Look for it with `perdure workflows list`. It may be of another namespace (--namespace, or another API key) "
        "or of another server (--server)."
    ),
    (e.NotFound, "failure_group"): "`perdure failures list` shows the groups that there are.",
    (e.NotFound, "run_id"): "`perdure workflows list --id ID` shows the runs of a workflow id.",
    (e.NotFound, "step"): "`perdure workflows history ID` shows its steps; --event-id takes any event.",
    (e.WorkflowAlreadyStarted, "run_id"): "Reset the open run, without --run-id, or terminate it first.",
    (e.NotFound, "store"): (
        "sqlite:///jobs.db is relative to this folder, sqlite:////srv/jobs.db is absolute. `perdure migrate` or "
        "`perdure server` makes a new file."
    ),
    (e.NotFound, "key"): "`perdure keys list` shows the start of each key's hash.",
    (e.PermissionDenied, "host"): (
        "Make one with `perdure keys create`, or listen on this machine only: --host 127.0.0.1."
    ),
    (e.Conflict, "port"): "Another server may be running there: stop it, or choose another one with --port.",
    (e.Conflict, "schema"): (
        "Run `perdure migrate --store URL` once, before this version's servers start. It is safe to repeat."
    ),
}

_BY_KIND: dict[type[e.PerdureError], str] = {
    e.Gone: "Fetch results earlier, or let the handler store elsewhere what must last.",
    e.Unauthenticated: (
        "Give one with --api-key or PERDURE_API_KEY. Where the store is, `perdure keys list` shows which there are and "
        "`perdure keys create` makes one."
    ),
    e.PermissionDenied: "Leave --namespace out, because the API key decides it; or use a key of that namespace.",
    e.IdempotencyConflict: (
        "It was used within 24 hours for another payload, name or option. Send exactly the same, or use another --key."
    ),
    e.IllegalMove: "`perdure tasks get ID` shows its state and what happens to it next.",
    e.WorkflowAlreadyStarted: (
        "Take another --id, or say with --id-conflict and --id-reuse what is to become of the run that has it."
    ),
    e.WorkflowClosed: "`perdure workflows get ID` shows how it ended.",
    e.UpdateFailed: "`perdure workflows history ID` shows what it has done.",
    e.QueryFailed: "`perdure workflows get ID` shows the run as the server sees it.",
    e.TaskTerminated: "`perdure workflows history ID` ends with who terminated it, and why.",
    e.PayloadTooLarge: "Store the data elsewhere and enqueue where it is.",
    e.ResourceExhausted: "Slow down and try again in a moment.",
    e.OutcomeUnknown: "Look with `perdure tasks list` before you repeat it, or repeat it with --key.",
    e.NoWorker: (
        "Start a worker whose module has this workflow: `perdure worker app.py --queue QUEUE`. `perdure workers` shows "
        "which there are."
    ),
    e.Unavailable: "Try again in a moment; `perdure server` logs why.",
    e.TaskFailed: "`perdure tasks get ID` shows its attempts, `perdure tasks retry ID` runs it again.",
    e.WaitTimeout: "It goes on: wait again, or see with `perdure tasks get ID` what it waits for.",
    e.Internal: "This is a fault of the server; its log has the details.",
}


def advice(error: e.PerdureError) -> str:
    """What to do; nothing where the error has said all there is."""
    for kind in type(error).__mro__:
        found = _BY_FIELD.get((kind, error.field or "")) or _BY_KIND.get(kind)
        if found:
            return found
    return f"Allowed: {error.limit}." if error.limit else ""
