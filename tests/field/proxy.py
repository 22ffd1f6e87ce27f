"""A proxy before PostgreSQL's socket that a test can switch off, and a server of its own that it can restart."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests.conftest import PostgresServer


class Switch:
    """Forwards every connection while it is on; off, it drops those there are and takes no new one."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self._folder = folder
        self._upstream = f"{upstream}/.s.PGSQL.5432"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    def url(self, direct: str) -> str:
        return f"{direct.partition('?')[0]}?host={self._folder}"

    async def on(self) -> None:
        self._server = await asyncio.start_unix_server(self._accept, f"{self._folder}/.s.PGSQL.5432")

    def off(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        (self._folder / ".s.PGSQL.5432").unlink(missing_ok=True)
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self.off()
        await asyncio.gather(*self._serving)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
        ends = {writer, up_writer}
        self._writers |= ends
        await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))
        self._writers -= ends


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


@contextlib.asynccontextmanager
async def switched(server: PostgresServer) -> AsyncIterator[Switch]:
    folder = Path(tempfile.mkdtemp(prefix="sw"))  # short: a socket's path has at most 107 bytes
    switch = Switch(folder, server.socket)
    await switch.on()
    try:
        yield switch
    finally:
        await switch.close()
        shutil.rmtree(folder, ignore_errors=True)


class OwnServer(PostgresServer):
    """A PostgreSQL that a test may stop and start."""

    def _control(self, *arguments: str) -> None:
        data, user = self._server.pgdata, self._server.system_user
        command = [str(self._psql.with_name("pg_ctl")), "-D", str(data), "-w", *arguments]
        done = subprocess.run(
            command, user=user, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", check=False,
        )  # fmt: skip
        assert done.returncode == 0, arguments

    def crash(self) -> None:
        """As after a power cut: nothing is written or said."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        options = f'-h "" -k {self.socket}'
        self._control("-o", options, "-l", "/dev/null", "start")


@contextlib.contextmanager
def own_server() -> Iterator[OwnServer]:
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = OwnServer(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
