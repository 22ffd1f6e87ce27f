"""Runs the example with a real crash: a server, a worker that is killed with SIGKILL in the middle, another worker.

The last line says how it ended; the exit status is 0 only if every job succeeded and some had been running when the
worker was killed. Files go to demo-run/ in the current folder, which is made anew.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from perdure import Perdure

HERE = Path(__file__).parent
RUN = Path("demo-run").absolute()
PERDURE = str(Path(sys.executable).with_name("perdure"))
WIDTHS = (320, 160)
SLOTS = 8


@contextmanager
def process(name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A perdure command, its output in demo-run/NAME.log; asked to end when the context is left."""
    with (RUN / f"{name}.log").open("wb") as log:
        started = subprocess.Popen([PERDURE, *arguments], stdout=log, stderr=log)
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


def kill(supervisor: subprocess.Popen[bytes], worker: str) -> None:
    """SIGKILL to `perdure worker` and to the process in which it runs the handlers: no clean-up, no report, no goodbye.
    The name of a worker, as tasks show it, is HOST:PID."""
    supervisor.kill()
    os.kill(int(worker.rpartition(":")[2]), signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def listening(port: int) -> None:
    """Returns when something accepts connections there. A client would wait as well, but log what it waits for."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


def jobs() -> list[tuple[str, dict[str, Any]]]:
    """(task, payload) of all jobs, the three kinds mixed."""
    readings = [("month_report", {"file": path.name}) for path in sorted((HERE / "input/readings").iterdir())]
    photos = [
        ("thumbnail", {"photo": path.name, "width": width, "target": str(RUN / "thumbnails")})
        for path in sorted((HERE / "input/photos").iterdir())
        for width in WIDTHS
    ]
    notes = [("note_digest", {"note": path.name}) for path in sorted((HERE / "input/notes").iterdir())]
    mixed: Any = chain.from_iterable(zip_longest(readings, photos, notes))
    return [job for job in mixed if job is not None]


def key(task: str, payload: dict[str, Any]) -> str:
    """What makes a job the same job, however often it is enqueued: "thumbnail marsh-01.png 320"."""
    return " ".join([task, *(str(value) for name, value in payload.items() if name != "target")])


def shown(result: dict[str, Any]) -> str:
    """A result in a few words."""
    if "temperature_c" in result:
        mean = result["temperature_c"]
        return f"mean {mean['mean']} °C ({mean['low']} to {mean['high']})"
    if "size" in result:
        return f"{result['file']}, {result['bytes']} bytes"
    return f"{result['words']} words: {', '.join(result['frequent'])}"


def table(views: list[Any], results: list[Any], most: int = 16) -> Table:
    """One line a job: those that the kill interrupted first, then some of the others."""
    rows = Table("job", "attempts", "result", box=None, pad_edge=False)
    pairs = sorted(zip(views, results, strict=True), key=lambda pair: -pair[0].attempt)
    for view, result in pairs[:most]:
        rows.add_row(view.idempotency_key, str(view.attempt), shown(result))
    if len(pairs) > most:
        rows.add_row(f"... {len(pairs) - most} more", "", "")
    return rows


def run(server: str) -> int:
    """The application reads the server's address when it is imported."""
    os.environ["PERDURE_SERVER"] = server
    from app import app

    with app:
        return crash(app)


def crash(app: Perdure) -> int:
    """Enqueue everything, kill the worker after a third of it, and count what came of it."""
    worker = ("worker", str(HERE / "app.py"), "--slots", str(SLOTS))
    handles = [app.enqueue(name, payload, idempotency_key=key(name, payload)) for name, payload in jobs()]
    print(f"{len(handles)} jobs are enqueued; a worker starts")
    with process("worker-1", *worker) as first:
        handles[len(handles) // 3].result(timeout=60)
        running = app.find(state="LEASED").tasks
        kill(first, str(running[0].worker))
    print(f"a third is done; the worker was killed with SIGKILL while {len(running)} jobs ran; another one starts")
    with process("worker-2", *worker):
        results = [handle.result(timeout=60) for handle in handles]
    views = [handle.status() for handle in handles]
    Console().print(table(views, results))
    succeeded = sum(view.state == "SUCCEEDED" for view in views)
    resumed = sum(view.attempt > 1 for view in views)
    lost = len(handles) - succeeded
    print(f"demo: {succeeded} of {len(handles)} jobs succeeded, {resumed} resumed after a kill, {lost} lost")
    return 0 if succeeded == len(handles) and resumed > 0 else 1


def main() -> int:
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir()
    port = free_port()
    with process("server", "server", "--store", f"sqlite:///{RUN}/jobs.db", "--port", str(port)):
        listening(port)
        return run(f"http://127.0.0.1:{port}")


if __name__ == "__main__":
    sys.exit(main())
