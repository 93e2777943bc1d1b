"""A real browser for tests: headless Chromium, driven through its DevTools pipe by the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 60.0


def find_browser() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    pass


class Browser:
    """One process for all tests; each page is a tab of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        flags = [
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run",
            "--disable-gpu",
            "--no-default-browser-check", "--disable-extensions", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-quic", "--mute-audio", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--force-color-profile=srgb",
        ]  # fmt: skip
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")

        def give_pipes() -> None:  # the browser reads from 3 and writes to 4
            inward, outward = os.dup(to_browser), os.dup(from_browser)
            os.dup2(inward, 3)
            os.dup2(outward, 4)

        self.process = subprocess.Popen(
            [program, *flags, "about:blank"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=give_pipes,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        os.set_blocking(self._in, False)
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        mine = self._number
        while True:
            found = self._receive()
            if found.get("id") == mine:
                if "error" in found:
                    raise BrowserError(f"{method}: {found['error']}")
                return dict(found["result"])
            self.events.append(found)

    def _receive(self) -> dict[str, Any]:
        until_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            try:
                more = os.read(self._in, 1 << 20)
            except BlockingIOError:
                if time.monotonic() > until_s:
                    raise BrowserError("the browser does not answer") from None
                time.sleep(0.002)
                continue
            if not more:
                raise BrowserError("the browser has ended")
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        while True:
            for place, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(place)
            self.events.append(self._receive())

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(timeout=PATIENCE_S)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)

    def open(self, path: Path, **look: Any) -> Tab:
        return Tab(self, path, **look)


class Tab:
    """A page as someone would see it: with a size, a colour scheme and a place for downloads."""

    def __init__(
        self, browser: Browser, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False,
        scale: float = 1.0, downloads: Path | None = None,
    ) -> None:  # fmt: skip
        self.browser = browser
        # A context of its own keeps nothing of what other pages stored.
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.dark(dark)
        if downloads is not None:
            place = {"downloadPath": str(downloads), "browserContextId": self.context}
            browser.call("Browser.setDownloadBehavior", behavior="allow", **place)
        began_s = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        browser.wait_for("Page.loadEventFired", self.session)
        self.loaded_s = time.monotonic() - began_s

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def dark(self, on: bool) -> None:
        scheme = "dark" if on else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises included."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise BrowserError(json.dumps(found["exceptionDetails"])[:2000])
        return found["result"].get("value")

    def until(self, expression: str, patience_s: float = 60.0) -> None:
        until_s = time.monotonic() + patience_s
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < until_s, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, key: str, text: str = "") -> None:
        code = {"Enter": 13, " ": 32, "Tab": 9}.get(key, 0)
        more = {"text": text or {"Enter": "\r", " ": " "}.get(key, "")}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def draw(self, *names: str) -> None:
        """Figures are drawn when they come into sight: looks at one after another, and goes back."""
        for name in names:
            figure = f"document.querySelector('figure[data-figure={json.dumps(name)}]')"
            self.ask(f"{figure}.scrollIntoView({{behavior: 'instant', block: 'center'}})")
            self.until(f"{figure}.dataset.drawn !== undefined")
        self.ask("scrollTo({top: 0, behavior: 'instant'})")

    def draw_everything(self) -> None:
        self.draw(*self.ask("[...document.querySelectorAll('figure[data-figure]')].map(f => f.dataset.figure)"))

    def picture(self, path: Path, *, whole: bool = True) -> Path:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def complaints(self) -> list[str]:
        """Errors on the console, scripts that failed, and what the page's own policy stopped."""
        said = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            found = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                said.append(json.dumps(found["exceptionDetails"])[:500])
            elif event["method"] == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
                said.append(json.dumps(found["args"])[:500])
            elif event["method"] == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
                said.append(found["entry"]["text"])
        return said

    def requests(self) -> list[str]:
        """What the page asked for, beside itself."""
        asked = [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("sessionId") == self.session and event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked[1:] if not url.startswith(("data:", "blob:"))]

    def close(self) -> None:
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        self.browser.events = [e for e in self.browser.events if e.get("sessionId") != self.session]
