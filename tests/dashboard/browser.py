"""A real Chromium without a window, driven by the DevTools protocol over its WebSocket.

Debian's package `chromium` is what `make test` installs; PERDURE_CHROMIUM names another one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PATIENCE = 60.0
"""Seconds for whatever a browser on a busy machine has to do."""
_FLAGS = (
    "--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
    "--disable-extensions", "--disable-background-networking", "--hide-scrollbars", "--mute-audio",
)  # fmt: skip


def program() -> str:
    """Where the browser is; AssertionError says what is missing."""
    named = os.environ.get("PERDURE_CHROMIUM")
    found = named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "these tests need Chromium: install the package chromium, or name one in PERDURE_CHROMIUM"
    return found


class Tab:
    """A tab of its own profile: no cookies of others. `complaints` are errors, refusals of the content security policy
    among them."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session = ""
        self._last = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self.complaints: list[str] = []

    async def open(self) -> None:
        context = (await self.ask("Target.createBrowserContext"))["browserContextId"]
        target = await self.ask("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable")
        await self.resize(1280, 900)

    async def close(self) -> None:
        self._reading.cancel()
        await self._socket.close()

    async def ask(self, method: str, **params: Any) -> Any:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        answer = self._answers[self._last] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        async with asyncio.timeout(PATIENCE):
            return await answer

    async def go(self, url: str) -> None:
        """Returns when the page has loaded."""
        self._loaded.clear()
        await self.ask("Page.navigate", url=url)
        await self.loaded()

    async def loaded(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._loaded.wait()
        self._loaded.clear()

    async def run(self, script: str) -> Any:
        """What an expression of JavaScript comes to."""
        reply = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    async def until(self, script: str) -> None:
        """Until an expression is true."""
        async with asyncio.timeout(PATIENCE):
            while not await self.run(script):
                await asyncio.sleep(0.05)

    async def text(self) -> str:
        return str(await self.run("document.body.innerText"))

    async def click(self, selector: str) -> None:
        """Click what leads to another page, and wait for that."""
        self._loaded.clear()
        await self.run(f"document.querySelector({json.dumps(selector)}).click()")
        await self.loaded()

    async def press(self, key: str, code: int = 0) -> None:
        typed = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            await self.ask("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    async def resize(self, width: int, height: int) -> None:
        size: dict[str, Any] = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)

    async def scheme(self, name: str) -> None:
        """What the system prefers: light or dark."""
        await self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def zone(self, name: str) -> None:
        await self.ask("Emulation.setTimezoneOverride", timezoneId=name)

    async def picture(self) -> bytes:
        """What the tab shows, as PNG."""
        return base64.b64decode((await self.ask("Page.captureScreenshot", format="png"))["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                answer = self._answers.pop(data["id"])
                if answer.done():
                    continue
                if "error" in data:
                    answer.set_exception(AssertionError(data["error"]))
                else:
                    answer.set_result(data["result"])
                continue
            match data["method"]:
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Log.entryAdded" if data["params"]["entry"]["level"] in ("error", "warning"):
                    self.complaints.append(str(data["params"]["entry"]["text"]))
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(data["params"]["exceptionDetails"]))


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a browser that lives as long as the context."""
    flags = [*_FLAGS, f"--user-data-dir={folder / 'profile'}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    process = await asyncio.create_subprocess_exec(
        program(),
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            address = await _address(process)
        draining = asyncio.create_task(_drain(process))
        async with aiohttp.ClientSession() as session:
            socket = await session.ws_connect(address, max_msg_size=0)
            tab = Tab(socket)
            await tab.open()
            yield tab
            await tab.close()
        draining.cancel()
    finally:
        process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said: list[str] = []
    async for line in process.stderr:
        said.append(line.decode(errors="replace"))
        if "DevTools listening on " in said[-1]:
            return said[-1].partition("DevTools listening on ")[2].strip()
    raise AssertionError(f"the browser did not start: {''.join(said)}")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(65_536):
        continue
