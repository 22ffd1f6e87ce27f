"""`perdure golden-signals`: how things went in the last minutes."""

from __future__ import annotations

from perdure.cli.ask import Json, Whom, call
from perdure.cli.options import spread
from perdure.cli.show import show_json, show_table


@spread
def golden_signals(*, whom: Whom, json: Json = False) -> None:
    """Show how things went on a server in the last five minutes: waits for workers, late alarms, lost leases.

    Example: perdure golden-signals
    """
    found = call(whom, lambda app: app.golden_signals())
    if json:
        show_json(found)
        return
    rows = [
        (queue.name, str(queue.started), f"{queue.schedule_to_start_p50:.3f}s", f"{queue.schedule_to_start_p99:.3f}s")
        for queue in found.queues
    ]
    show_table(("queue", "started", "wait p50", "wait p99"), rows)
    print(f"of the last {found.seconds:.0f} s: {found.started} started, {found.leases_lost} leases lost")
    print(f"alarm lag p99   {_seconds(found.alarm_lag_p99)}")
    print(f"dispatch share  {_share(found.dispatch_share)}")
    print(f"utilization     {_share(found.utilization)}")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
