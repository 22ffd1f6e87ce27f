"""A PostgreSQL on TCP that a test may crash, start again, and whose clock it may set."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.deployment import free_port
from tests.field.proxy import OwnServer

_LIBRARY = "faketime/libfaketime.so.1"


class TcpPostgres(OwnServer):
    """`clock` is libfaketime, if the clock is to be set."""

    def __init__(self, folder: Path, clock: Path | None = None) -> None:
        super().__init__(folder)
        self.port = free_port()
        self._offset = folder.with_name(f"{folder.name}.clock")
        self._clock = clock
        self.set_clock(0)
        self.crash()
        self.start()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def set_clock(self, seconds: int) -> None:
        """By so much the database's clock is wrong from now on."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(self._offset)  # it is read all the time, and must never be seen empty

    def start(self) -> None:
        command = [
            str(self._psql.with_name("pg_ctl")), "-D", str(self._server.pgdata), "-w", "-l", "/dev/null",
            "-o", f"-h 127.0.0.1 -p {self.port} -k {self.socket}", "start",
        ]  # fmt: skip
        environment = dict(os.environ)
        if self._clock is not None:
            environment |= {
                "LD_PRELOAD": str(self._clock),
                "FAKETIME_TIMESTAMP_FILE": str(self._offset),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        done = subprocess.run(
            command, user=self._server.system_user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/", env=environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, command

    def stop(self) -> None:
        super().stop()
        self._offset.unlink()


@contextlib.contextmanager
def tcp_postgres(clock: Path | None = None) -> Iterator[TcpPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = TcpPostgres(folder, clock)
    try:
        server.run("create database jobs")
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def faketime_library() -> Path:
    """libfaketime, of Debian's package faketime. It is installed where that is allowed; else the test fails."""
    if (found := _installed()) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "faketime"]):
            subprocess.run(["apt-get", "--quiet", *arguments], check=True, capture_output=True)
        found = _installed()
    assert found is not None, "this test needs libfaketime: install Debian's package `faketime`, or run it as root"
    return found


def _installed() -> Path | None:
    return next((path for lib in ("/usr/lib", "/usr/lib64") for path in Path(lib).glob(f"**/{_LIBRARY}")), None)
