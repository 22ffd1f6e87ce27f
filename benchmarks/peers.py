"""The libraries that Perdure is compared with, run by the scripts of a folder outside this repository.

PEERS_DIR names the folder with their virtual environments and data, PERDURE_PEER_BENCH the one with the scripts
(`../shared/bench/peers` beside this repository by default). Each script prints a line of JSON for each result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TIMEOUT = 180.0  #: seconds for one script

LOOK = 0.005
"""Seconds between two looks at how many jobs have run, and at the store until it is empty. The scripts look every 50
and 20 ms, which is a sixth and a tenth of what a drain takes on a current machine; so they are made to look as often as
our own workloads do. Only the process that measures is changed, not the workers that it starts."""

_FINER = f"""
import asyncio, common, runpy, sys
asyncio.sleep = lambda seconds, *more, sleep=asyncio.sleep: sleep({LOOK} if seconds == .02 else seconds, *more)
common.wait_for = lambda reached, timeout=300, poll=0, wait=common.wait_for: wait(reached, timeout, {LOOK})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
_SIZES = ("jobs", "batch", "n")
_FRESH = "import common, json, sys; print(json.dumps(common.pg_fresh_db(sys.argv[1])))"


class Peers:
    """All peers. Their PostgreSQL is started by whoever needs it first."""

    def __init__(self, home: Path, scripts: Path) -> None:
        self._home = home.resolve()
        self._scripts = scripts.resolve()
        self.versions: set[str] = set()

    @classmethod
    def installed(cls) -> Peers | None:
        """None where they are not: ratios need them."""
        home = os.environ.get("PEERS_DIR")
        scripts = Path(os.environ.get("PERDURE_PEER_BENCH", ROOT.parent / "shared" / "bench" / "peers"))
        return cls(Path(home), scripts) if home and (scripts / "common.py").exists() else None

    def pgqueuer_jobs(self, jobs: int) -> dict[str, float]:
        """Bulk enqueue and drain; the rate of single enqueues, one after another, beside it."""
        return self._workload("pgqueuer", "W1", "--jobs", str(jobs))

    def pgqueuer_enqueues(self, enqueues: int, in_flight: int) -> dict[str, float]:
        """Single enqueues, many in flight over a pool of connections: a script of ours, run by their Python."""
        url, _ = self.postgres_database("pgqueuer")
        script = Path(__file__).with_name("pgqueuer_enqueues.py")
        return self._run("pgqueuer", str(script), url, str(enqueues), str(in_flight))

    def celery_enqueues(self, enqueues: int) -> dict[str, float]:
        """Single enqueues, one after another, into Redis."""
        return self._workload("celery", "W1", "--jobs", str(enqueues), "--variant", "rdb:late")

    def celery_latency(self, samples: int) -> dict[str, float]:
        return self._workload("celery", "W4", "--lat", str(samples), "--variant", "rdb:late")

    def restate(self, workload: str, *arguments: str) -> dict[str, float]:
        """A workload of workflows: W2, W4, W5 or W6, with the faster of its two servers for Python."""
        return self._workload("restate", workload, "--variant", "granian", *arguments)

    def restate_fan_out(self, mode: str) -> dict[str, float]:
        """W3, which prints a line for steps and one for children; the faster server of the two for it."""
        script = str(self._scripts / "peer_restate.py")
        command = ("-c", _FINER, script, "--workload", "W3", "--variant", "hypercorn")
        return self._numbers(self._lines(self._python_of("restate"), *command)[0 if mode == "steps" else 1])

    def temporal(self, workload: str, *arguments: str) -> dict[str, float]:
        """Temporal's development server on a file, with dispatched activities."""
        return self._workload("temporal", workload, "--variant", "file:wal", *arguments)

    def postgres_database(self, name: str) -> tuple[str, int]:
        """(URL of an empty database, pid of the server)."""
        url, pid = self._python(sys.executable, "-c", _FRESH, name)
        return url, pid

    @contextmanager
    def postgres(self) -> Iterator[None]:
        """Their server, which is stopped at the end unless it ran before."""
        info = self._home / "data" / "pg.json"
        ran = info.exists() and Path(f"/proc/{json.loads(info.read_text(encoding='utf-8'))['pid']}").exists()
        try:
            yield
        finally:
            if not ran and info.exists():
                command = [self._python_of("epg"), str(self._scripts / "pg.py"), "stop"]
                subprocess.run(command, env=self._environment(), check=True, stdout=subprocess.DEVNULL)

    def _workload(self, peer: str, workload: str, *arguments: str) -> dict[str, float]:
        script = str(self._scripts / f"peer_{peer}.py")
        return self._run(peer, "-c", _FINER, script, "--workload", workload, *arguments)

    def _run(self, peer: str, *arguments: str) -> dict[str, float]:
        return self._numbers(self._python(self._python_of(peer), *arguments))

    def _numbers(self, result: dict[str, Any]) -> dict[str, float]:
        self.versions.update(str(result["ver"]).split(", "))
        return {name: value for name, value in result.items() if type(value) in (int, float) and name not in _SIZES}

    def _python(self, *command: str) -> Any:
        """What a script says in its last line."""
        return self._lines(*command)[-1]

    def _lines(self, *command: str) -> list[Any]:
        """What a script says. One that is asked to end stops what it started."""
        process = subprocess.Popen(
            command,
            env=self._environment(),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except BaseException:
            process.terminate()
            try:
                process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            raise
        if process.returncode or not out.strip():
            raise RuntimeError(f"{command} ended with status {process.returncode}\n{err[-2000:]}")
        return [json.loads(line) for line in out.strip().splitlines() if line.startswith(("{", "["))]

    def _python_of(self, peer: str) -> str:
        return str(self._home / "venvs" / peer / "bin" / "python")

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PEERS_DIR": str(self._home), "PYTHONPATH": str(self._scripts)}
