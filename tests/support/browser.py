"""A headless Chromium, driven by the DevTools protocol over a pipe: no driver, no port."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One page of a browser.

    Attributes:
        complaints: errors that the page wrote to the console or did not catch.
        requested: URLs that the page asked for.
        address: URL of the page.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self.address = ""
        self._moved = asyncio.Event()

    async def listen(self) -> None:
        """Reads the messages of the browser until it ends."""
        while message := (await self._reader.readuntil(b"\0"))[:-1]:
            said = json.loads(message)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Network.requestWillBeSent":
                self.requested.append(said["params"]["request"]["url"])
            elif said["method"] == "Page.frameNavigated":
                self.address = said["params"]["frame"]["url"]
                self._moved.set()
            elif said["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(said["params"]))

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._writer.write(json.dumps(command).encode() + b"\0")
        said = await asyncio.wait_for(answer, 90)
        assert "error" not in said, f"{method}: {said}"
        return dict(said["result"])

    async def attach(self) -> None:
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def open(self, url: str, *, width: int, height: int, dark: bool = False, touch: bool = False) -> None:
        """Opens a page in a window of this size, in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition: str, seconds: float = 60) -> None:
        """Returns when a JavaScript condition holds; it is looked at whenever the page has drawn a frame."""
        script = (
            f"new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 50); look(); }})"
        )
        await asyncio.wait_for(self.run(script), seconds)

    async def arrive(self, url: str, seconds: float = 60) -> None:
        """Returns when the page has led to another one, in which a script of the former page would not go on."""
        async with asyncio.timeout(seconds):
            while self.address != url:
                self._moved.clear()
                await self._moved.wait()

    async def screenshot(self) -> bytes:
        """The whole page, as a PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Browser]:
    """A browser that keeps its files in `profile`."""
    (to_browser, commands), (answers, from_browser) = os.pipe(), os.pipe()
    # Chromium reads from descriptor 3 and writes to descriptor 4.
    command = f'exec chromium "$@" 3<&{to_browser} 4>&{from_browser}'
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank",
        pass_fds=(to_browser, from_browser),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_browser)
    os.close(from_browser)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**26)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers, "rb"))
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(commands, "wb"))
    browser = Browser(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    listening = asyncio.create_task(browser.listen())
    try:
        await browser.attach()
        yield browser
    finally:
        listening.cancel()
        process.kill()
        await process.wait()
        reading.close()
        transport.close()
        await asyncio.gather(listening, return_exceptions=True)
