"""A headless Chromium, driven over the pipe of its DevTools protocol: no driver, no port.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)
KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Escape": 27,
    "Enter": 13,
    "Home": 36,
    "End": 35,
}
_PATIENCE = 30.0
# The browser reads commands from descriptor 3 and answers on 4.
_HANDED_ON = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
_HANDED_ON += "os.execv(sys.argv[3], sys.argv[3:])"


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(RuntimeError):
    """The browser refused a command, or the page's script failed."""


class Browser:
    """One page of one browser with a new, empty profile.

    with Browser(find_chromium(), tmp_path) as page:
        page.open(path)
        page("document.title")
    """

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        start = [sys.executable, "-S", "-c", _HANDED_ON, str(commands), str(answers), program]
        self._process = subprocess.Popen(
            [*start, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        try:
            targets = self.send("Target.getTargets")["targetInfos"]
            target = next(one["targetId"] for one in targets if one["type"] == "page")
            attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.send(f"{domain}.enable")
            self.resize(1280, 800)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and what it gives back."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        rest = memoryview(json.dumps(command).encode() + b"\0")
        while rest:
            rest = rest[os.write(self._commands, rest) :]
        until = time.monotonic() + _PATIENCE
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def __call__(self, script: str) -> Any:
        """The value of a script, awaited if it is a promise."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", details).get("description", str(details)))
        return answer["result"].get("value")

    def open(self, file: Path, ready: str = "document.readyState === 'complete'") -> float:
        """Shows a file; returns the seconds until ``ready`` was true."""
        self.send("Page.navigate", url="about:blank")
        self.events.clear()
        start = time.monotonic()
        self.send("Page.navigate", url=file.absolute().as_uri())
        self.wait(f"location.protocol === 'file:' && ({ready})")
        return time.monotonic() - start

    def wait(self, condition: str) -> None:
        """Until a script's value is true."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                if self(condition):
                    return
            except BrowserError:  # the page is only just coming
                if time.monotonic() > until:
                    raise
            if time.monotonic() > until:
                raise BrowserError(f"never true: {condition}")
            time.sleep(0.01)

    def press(self, key: str, times: int = 1) -> None:
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for _ in range(times):
            common: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type="keyDown", **common, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def move(self, x: float, y: float, kind: str = "mouseMoved", **more: Any) -> None:
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.move(x, y, kind, button="left", clickCount=1)

    def click_on(self, selector: str) -> None:
        self.click(*self.centre(selector))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.move(*start)
        self.move(*start, "mousePressed", button="left", clickCount=1)
        self.move(*end, "mouseMoved", button="left", buttons=1)
        self.move(*end, "mouseReleased", button="left", clickCount=1)

    def swipe(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """One finger."""
        for kind, place in (("touchStart", start), ("touchMove", end)):
            points = [{"x": place[0], "y": place[1]}]
            self.send("Input.dispatchTouchEvent", type=kind, touchPoints=points)
        self.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def centre(self, selector: str) -> tuple[float, float]:
        box = self(
            f"(() => {{const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]})()"
        )
        return box[0], box[1]

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            mobile=phone,
            deviceScaleFactor=2 if phone else 1,
        )
        self.send("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme: str) -> None:
        """``dark`` or ``light``."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot")["data"])

    def complaints(self) -> list[str]:
        """Errors of the page since it was opened, but for pictures that are not there."""
        self("1")  # all events of the past come before the answer
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            entry = parameters.get("entry", {})
            missing = "ERR_FILE_NOT_FOUND" in entry.get("text", "")
            if entry.get("level") == "error" and not missing:
                found.append(entry["text"])
        return found

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._answers], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise BrowserError("the browser does not answer")
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise BrowserError("the browser is gone")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
