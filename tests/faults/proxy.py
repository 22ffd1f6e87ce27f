"""A TCP proxy whose connections a test cuts, delays, holds up, or turns deaf."""

from __future__ import annotations

import asyncio
import contextlib

from tests.faults.deployment import free_port


class _Pair:
    """A connection through the proxy. Once `deaf`, what either side sends is thrown away, and nobody hears that the
    other has gone: a firewall has forgotten the connection."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self.ends = ends
        self.deaf = False

    def abort(self) -> None:
        for end in self.ends:
            end.transport.abort()


class Proxy:
    """Forwards to `upstream`, a port of this machine, which may be changed for new connections."""

    def __init__(self, upstream: int) -> None:
        self.port = free_port()
        self.upstream = upstream
        self.delay = 0.0  #: seconds that each piece of data takes longer
        self.connections = 0  #: that were made
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        await self.on()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.off()
        self.flow()
        for pump in self._serving:
            pump.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def on(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=2048)

    def off(self) -> None:
        """Cut all and take no new connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Every connection is reset, in the middle of whatever it carries."""
        for pair in self._pairs:
            pair.abort()

    def hold(self) -> None:
        """Nothing arrives until `flow`, but nothing is lost: packets are sent again and again."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def swallow(self) -> int:
        """The connections that there are, this many, turn deaf for ever; new ones are not."""
        for pair in self._pairs:
            pair.deaf = True
        return len(self._pairs)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:  # nobody is there: as if this were not there either
            writer.transport.abort()
            return
        self.connections += 1
        pair = _Pair(writer, up_writer)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pump(reader, up_writer, pair), self._pump(up_reader, writer, pair))
        finally:
            self._pairs.discard(pair)
            pair.abort()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, pair: _Pair) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flows.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                if not pair.deaf:
                    target.write(data)
                    await target.drain()
        if not pair.deaf:
            target.close()
