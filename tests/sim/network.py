"""The network between clients, workers and servers: what `aiohttp` is on one side and uvicorn on the other.

A WebSocket is a pair of ordered streams that are never lossy, until they are cut; each end hears of that after a while.
A POST is a request of its own: it may be lost, come twice or late, and so may its answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import aiohttp

from tests.sim.loop import NODE, Node, SimLoop

Blame = Callable[[Node], None]
"""Tells that something was done to a process for which its work may suffer."""
LATE = 0.5
"""Seconds of delay that count as something done to a process."""


class Trouble:
    """How bad the network is: probabilities for each message."""

    def __init__(self) -> None:
        self.lost = self.doubled = self.delayed = 0.0
        self.longest = 0.0  #: seconds that a delayed message takes at most
        self.deaf: set[str] = set()  #: processes that no message reaches or leaves

    def heal(self) -> None:
        self.__init__()  # type: ignore[misc]


class Server:
    """Where an ASGI app listens."""

    def __init__(self, node: Node, app: Callable[..., Any]) -> None:
        self.node = node
        self.app = app
        self.listening = True


class Network:
    """All processes and the connections between them."""

    def __init__(self, loop: SimLoop, source: Random, blame: Blame) -> None:
        self.loop = loop
        self.trouble = Trouble()
        self.servers: list[Server] = []
        self.sockets: list[Socket] = []
        self.posts: list[Post] = []
        self.half_open: list[Socket] = []  #: broken, but the server may not know yet
        self.blame = blame
        self._source = source

    # ------------------------------------------------------------------------------------------------------ conditions
    def route(self, client: Node) -> Server | None:
        """The server that a new connection reaches; None: nobody listens, or nothing gets through."""
        found = [server for server in self.servers if server.listening and server.node.alive]
        if not found:
            return None
        server = found[int(self._source.random() * len(found))]
        if self.is_deaf(client, server.node):
            return None
        return server

    def is_deaf(self, *nodes: Node) -> bool:
        return any(node.name.partition("/")[0] in self.trouble.deaf for node in nodes)

    def latency(self, *nodes: Node) -> float:
        draw, trouble = self._source.random, self.trouble
        if trouble.delayed and draw() < trouble.delayed:
            late = draw() * trouble.longest
            if late > LATE:
                self.accuse(*nodes)
            return late
        return 0.0001 + draw() * 0.002

    def chance(self, probability: float) -> bool:
        return probability > 0 and self._source.random() < probability

    def between(self, least: float, most: float) -> float:
        return least + self._source.random() * (most - least)

    def accuse(self, *nodes: Node) -> None:
        for node in nodes:
            self.blame(node)

    # ------------------------------------------------------------------------------------------------- cuts and deaths
    def cut(self, socket: Socket) -> None:
        """Break a connection; what travels is lost."""
        if not socket.broken:
            socket.broken = True
            self.sockets.remove(socket)
            self.accuse(socket.client, socket.server)
            self.at(socket.client, self.between(0, 0.05), socket.client_hears_end)
            if self.chance(0.2):
                self.half_open.append(socket)
                self.at(socket.server, self.between(5, 30), socket.server_hears_end)
            else:
                self.at(socket.server, self.between(0, 0.1), socket.server_hears_end)

    def heal(self) -> None:
        """All messages arrive, and everybody knows what is broken."""
        self.trouble.heal()
        self.hear_again()
        for socket in self.half_open:
            self.at(socket.server, 0.0, socket.server_hears_end)
        self.half_open.clear()

    def hear_again(self) -> None:
        """What was deaf is not any more: both ends see that something is missing."""
        for socket in [s for s in self.sockets if s.swallowed and not self.is_deaf(s.client, s.server)]:
            self.cut(socket)

    def died(self, node: Node) -> None:
        """Its sockets break; its own tasks hear nothing any more."""
        for socket in [s for s in self.sockets if node in (s.client, s.server)]:
            self.cut(socket)
        for post in self.posts:
            post.lose(node)

    def at(self, node: Node, delay: float, callback: Callable[..., Any], *args: Any) -> None:
        self.loop.call_later(delay, callback, *args, context=node.context)


class Socket:
    """A WebSocket. The client's end looks like aiohttp's, the server's like what ASGI hands over."""

    def __init__(self, network: Network, client: Node, server: Server) -> None:
        self._network = network
        self.client = client
        self.server = server.node
        self.broken = False
        self.close_code = 1006
        self.swallowed = False  #: a message was lost, so no later one can arrive
        self.mute = False  #: nothing that the server says arrives
        self.doom: int | None = None  #: messages until it breaks, the last of which is lost
        self._accepted = network.loop.create_future()
        self._arrived = {"client": _Inbox(network.loop), "server": _Inbox(network.loop)}
        self._last = {"client": 0.0, "server": 0.0}
        network.sockets.append(self)

    def _send(self, end: str, node: Node, message: Any) -> None:
        if self.broken:
            return  # nobody is there, and the sender will find out
        if self.mute and end == "client":
            return  # until it is cut
        if self.swallowed or self._network.is_deaf(self.client, self.server):
            self.swallowed = True
            return
        if self.doom is not None:
            self.doom -= 1
            if self.doom < 0:
                self._network.cut(self)
                return
        now = self._network.loop.now
        when = max(self._last[end], now + self._network.latency(self.client, self.server))
        self._last[end] = when
        self._network.at(node, when - now, self._deliver, end, message)

    def _deliver(self, end: str, message: Any) -> None:
        if not self.broken:
            self._arrived[end].put(message)

    def client_hears_end(self) -> None:
        if not self._accepted.done():
            self._accepted.set_exception(aiohttp.ServerDisconnectedError())
            self._accepted.exception()
        self._arrived["client"].put(SimpleNamespace(type=aiohttp.WSMsgType.CLOSED, data=None))

    def server_hears_end(self) -> None:
        self._arrived["server"].put({"type": "websocket.disconnect"})

    # ------------------------------------------------------------------------------------------------ the client's end
    async def open(self) -> Socket:
        await self._accepted
        return self

    async def __aenter__(self) -> Socket:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.broken:
            self.broken = True
            self._network.sockets.remove(self)
            self._network.at(self.server, self._network.between(0, 0.05), self.server_hears_end)

    async def send_bytes(self, data: bytes) -> None:
        self._send("server", self.server, {"type": "websocket.receive", "bytes": data})

    async def receive(self) -> Any:
        return await self._arrived["client"].get()

    # ------------------------------------------------------------------------------------------------ the server's end
    async def asgi_receive(self) -> Any:
        return await self._arrived["server"].get()

    async def asgi_send(self, message: Any) -> None:
        match message["type"]:
            case "websocket.accept":
                self._network.at(self.client, self._network.latency(self.client, self.server), self._accept)
            case "websocket.send":
                data = SimpleNamespace(type=aiohttp.WSMsgType.BINARY, data=message["bytes"])
                self._send("client", self.client, data)
            case _:
                self._network.cut(self)

    def _accept(self) -> None:
        if not self._accepted.done() and not self.broken:
            self._accepted.set_result(None)


class _Inbox:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._messages: deque[Any] = deque()
        self._waiting: asyncio.Future[Any] | None = None

    def put(self, message: Any) -> None:
        self._messages.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def get(self) -> Any:
        while not self._messages:
            self._waiting = self._loop.create_future()
            await self._waiting
        return self._messages.popleft()


class Post:
    """A request of its own, as aiohttp's `session.post(...)` is awaited."""

    def __init__(self, network: Network, path: str, headers: list[tuple[bytes, bytes]], data: bytes, limit: float):
        self._network = network
        self._path = path
        self._headers = headers
        self._data = data
        self._limit = limit
        self._client = NODE.get()
        self._answer: asyncio.Future[tuple[int, bytes]] = network.loop.create_future()
        self._hangups: list[_Inbox] = []
        self._server: Node | None = None

    async def __aenter__(self) -> Post:
        network = self._network
        server = network.route(self._client)
        if server is None:
            await asyncio.sleep(network.between(0.001, 1.0))
            raise aiohttp.ConnectionTimeoutError("nobody listens")
        if network.chance(network.trouble.lost):
            network.accuse(self._client)
        else:
            self._call(server)
            if network.chance(network.trouble.doubled):
                network.at(server.node, network.between(0, 2.0), self._call, server)
        self._server = server.node
        network.posts.append(self)
        try:
            async with asyncio.timeout(self._limit):
                self.status, self._body = await self._answer
        finally:
            network.posts.remove(self)
            self._hang_up()
        return self

    def lose(self, node: Node) -> None:
        """One end is dead; the other hears of it, if its system has time to say so."""
        if node is self._server:
            self._network.accuse(self._client)
            self._network.at(self._client, self._network.between(0, 0.2), self._break)
        elif node is self._client:
            self._hang_up()

    def _hang_up(self) -> None:
        for hangup in self._hangups:
            self._network.at(self._server, self._network.latency(), hangup.put, {"type": "http.disconnect"})

    def _call(self, server: Server) -> None:
        inbox = _Inbox(self._network.loop)
        self._hangups.append(inbox)
        arrive = self._network.latency(self._client, server.node)
        self._network.at(server.node, arrive, self._arrive, server, inbox)

    def _arrive(self, server: Server, inbox: _Inbox) -> None:
        inbox.put({"type": "http.request", "body": self._data})
        scope = {"type": "http", "method": "POST", "path": self._path, "headers": self._headers}
        reply: dict[str, Any] = {}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                reply["status"] = message["status"]
                return
            self._leave(server, reply["status"], message["body"])

        server.node.spawn(server.app(scope, inbox.get, send))

    def _leave(self, server: Server, status: int, body: bytes) -> None:
        network = self._network
        if network.chance(network.trouble.lost) or network.is_deaf(self._client, server.node):
            network.accuse(self._client)
            network.at(self._client, network.between(0, 3.0), self._break)
        else:
            network.at(self._client, network.latency(self._client, server.node), self._take, status, body)

    def _take(self, status: int, body: bytes) -> None:
        if not self._answer.done():
            self._answer.set_result((status, body))

    def _break(self) -> None:
        if not self._answer.done():
            self._answer.set_exception(aiohttp.ServerDisconnectedError())

    async def __aexit__(self, *_: object) -> None:
        """The connection is kept."""

    async def read(self) -> bytes:
        return self._body


class Session:
    """aiohttp.ClientSession."""

    def __init__(self, network: Network, headers: dict[str, str]) -> None:
        self._network = network
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Its sockets were closed before."""

    async def close(self) -> None:
        """Nothing is kept."""

    async def ws_connect(self, url: str, **_: Any) -> Socket:
        network = self._network
        client = NODE.get()
        server = network.route(client)
        await asyncio.sleep(network.latency(client))
        if server is None or not server.node.alive or not server.listening:
            raise ConnectionRefusedError("nobody listens")
        socket = Socket(network, client, server)
        scope = {"type": "websocket", "path": "/wire", "headers": self._headers}
        network.at(server.node, network.latency(client, server.node), _accept, socket, server, scope)
        return await socket.open()

    def post(self, url: str, *, data: Any, timeout: Any) -> Post:
        path = "/" + url.split("/", 3)[3]
        sent = data if isinstance(data, bytes) else data.read()
        return Post(
            self._network, path, [*self._headers, (b"content-type", b"application/msgpack")], sent, timeout.sock_read
        )


def _accept(socket: Socket, server: Server, scope: dict[str, Any]) -> None:
    if not socket.broken:
        socket._arrived["server"].put({"type": "websocket.connect"})
        server.node.spawn(server.app(scope, socket.asgi_receive, socket.asgi_send))


class Aiohttp:
    """What modules find under the name `aiohttp`."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(aiohttp, name)

    def ClientSession(self, *, headers: dict[str, str], **_: Any) -> Session:
        headers = {name: value for name, value in headers.items() if name != "Content-Type"}
        return Session(self._network, headers)

    def TCPConnector(self, **_: Any) -> None:
        return None
