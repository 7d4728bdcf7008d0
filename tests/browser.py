"""A headless Chromium for tests, driven through its DevTools protocol: pages are opened, clicked and looked at.

The messages are JSON on two pipes, each ended by a NUL, so nothing but Chromium is needed.  Without Chromium a test is
skipped, unless REQUIRE_CHROMIUM is set, as it is in CI: then it fails.
"""

import base64
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

SECONDS = 120.0
"""That an answer may take; a machine that is busy needs some to start the browser."""
OPTIONS = (
    "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run", "--disable-extensions",
    "--disable-sync", "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
    "--disable-dev-shm-usage", "--disable-breakpad", "--disable-crash-reporter", "--hide-scrollbars",
)  # fmt: skip


def chromium() -> str:
    """The path of Chromium; skips the test that asks for it, or fails it, where there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("REQUIRE_CHROMIUM"):
            pytest.fail("REQUIRE_CHROMIUM is set, but there is no chromium")
        pytest.skip("no chromium: apt-get install chromium")
    return found


class Browser:
    """A running Chromium, with a profile of its own in `folder`; `with` ends it."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        self._log = folder / "chromium.log"
        self._number = 0
        self._unread = b""
        self._events: dict[str, list[dict[str, Any]]] = {}  # of each session, those that no one has taken yet
        # Chromium reads from descriptor 3 and writes to 4; ours lie above, so that no copy covers another
        read, self._to = map(_high, os.pipe())
        self._from, write = map(_high, os.pipe())
        self._process = os.posix_spawn(
            program,
            [program, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *options, "about:blank"],
            {**os.environ, "HOME": str(folder)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(self._log), os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, read, 3),
                (os.POSIX_SPAWN_DUP2, write, 4),
            ],
            setpgroup=0,
        )
        os.close(read)
        os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._send("Browser.close", {}, "")
        end = time.monotonic() + 10
        while (gone := os.waitpid(self._process, os.WNOHANG)[0]) == 0 and time.monotonic() < end:
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        if not gone:
            os.waitpid(self._process, 0)
        os.close(self._to)
        os.close(self._from)

    def open(self, address: str | Path, width: int = 1280, height: int = 900) -> "Page":
        """Open a file or an address in a new page, and wait until it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", session, **size)
        return Page(self, session, address.resolve().as_uri() if isinstance(address, Path) else address)

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """What a method of the protocol answers; RuntimeError where it refuses."""
        number = self._send(method, parameters, session)
        while (message := self._read()).get("id") != number:
            self._events.setdefault(message.get("sessionId", ""), []).append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def events(self, session: str) -> list[dict[str, Any]]:
        """The events of a session since the last time."""
        return self._events.pop(session, [])

    def wait(self, session: str) -> None:
        """Wait for one more event of any session."""
        message = self._read()
        self._events.setdefault(message.get("sessionId", ""), []).append(message)

    def _send(self, method: str, parameters: dict[str, Any], session: str) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        raw = json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0"
        while raw:
            raw = raw[os.write(self._to, raw) :]
        return self._number

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._from, 1 << 20) if ready else b""
            if not piece:
                why = "ended" if ready else f"did not answer for {SECONDS:.0f} s"
                raise RuntimeError(f"chromium {why}: {self._log.read_text('utf-8', 'replace')[-2000:]}")
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


class Page:
    """A page that has loaded.  errors: what its console shows as wrong.  requests: what it asked for beside itself."""

    def __init__(self, browser: Browser, session: str, address: str) -> None:
        self._browser, self._session, self._address = browser, session, address
        self._errors: list[str] = []
        self._requests: list[str] = []
        self._loaded = False
        for domain in ("Runtime", "Log", "Network", "Page"):
            self._call(f"{domain}.enable")
        self._call("Page.navigate", url=address)
        self._collect()
        while not self._loaded:
            browser.wait(session)
            self._collect()

    @property
    def errors(self) -> list[str]:
        self._settle(50)
        return self._errors

    @property
    def requests(self) -> list[str]:
        self._settle(50)
        return self._requests

    def evaluate(self, script: str) -> Any:
        """The value of an expression, awaited; AssertionError where it throws."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        self._collect()
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click the middle of the element, with the mouse."""
        x, y = self.evaluate(
            f"""(() => {{ const one = document.querySelector({json.dumps(selector)});
            one.scrollIntoView({{block: "center"}}); const box = one.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self._settle()

    def type(self, selector: str, words: str) -> None:
        """Put words into a field, in the place of what is there."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        if words:
            self._call("Input.insertText", text=words)
        else:
            for kind in ("keyDown", "keyUp"):
                self._call("Input.dispatchKeyEvent", type=kind, key="Delete", code="Delete", windowsVirtualKeyCode=46)
        self._settle()

    def visible(self, selector: str) -> list[str]:
        """The texts of the elements that are shown."""
        return self.evaluate(
            f"""[...document.querySelectorAll({json.dumps(selector)})].filter(one => one.checkVisibility())
            .map(one => one.textContent)"""
        )

    def screenshot(self, path: Path) -> None:
        """Write the page as it is seen, as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _settle(self, milliseconds: int = 0) -> None:
        """Wait until the page has done what it put off."""
        self.evaluate(f"new Promise(done => setTimeout(done, {milliseconds}))")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def _collect(self) -> None:
        for event in self._browser.events(self._session):
            method, told = event["method"], event["params"]
            if method == "Page.loadEventFired":
                self._loaded = True
            elif method == "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                self._errors.append(details.get("exception", {}).get("description") or details["text"])
            elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                self._errors.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
            elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                self._errors.append(told["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                url = told["request"]["url"]
                if url != self._address and not url.startswith("data:"):
                    self._requests.append(url)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser that the tests of a module share."""
    with Browser(chromium(), tmp_path_factory.mktemp("chromium")) as running:
        yield running


def _high(descriptor: int) -> int:
    """The same pipe under a number from 10 on."""
    import fcntl  # Windows has none, and collects this file all the same

    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy
