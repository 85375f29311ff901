"""A headless Chromium that is driven over a pipe, and what its page did."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)

#: The numbers of keys that have no character.
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Page:
    """A page of the browser."""

    def __init__(self, send, receive):
        self._send, self._receive = send, receive
        self._numbers, self._session = itertools.count(1), None
        self.errors, self.dialogs, self.requests, self._left = [], [], [], b""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._next(60)).get("id") != number:
            assert answer, f"no answer to {method}"
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self, seconds):
        until = time.monotonic() + seconds
        while b"\0" not in self._left:
            if not select.select([self._receive], [], [], max(0, until - time.monotonic()))[0]:
                return {}
            read = os.read(self._receive, 1 << 20)
            assert read, "the browser ended"
            self._left += read
        text, self._left = self._left.split(b"\0", 1)
        event = json.loads(text)
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(event["params"]["exceptionDetails"])
            case "Log.entryAdded" if event["params"]["entry"]["level"] == "error":
                self.errors.append(event["params"]["entry"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(event["params"]["message"])
            case "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
        return event

    def open(self, path, *, size=(1280, 860), dark=False):
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.resize(*size)
        self.call("Page.navigate", url=path.as_uri())
        self.wait(
            "document.readyState === 'complete' && !!document.querySelector('main:not([hidden])')"
        )
        self.frame()

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=False)  # fmt: skip

    def run(self, script):
        """Return the value of a script, which may be a promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition, seconds=20):
        until = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < until, (condition, self.errors)
            time.sleep(0.05)

    def frame(self):
        """Let the page draw: two frames."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key, **more):
        code = KEYS.get(key, 0)
        text = "\r" if key == "Enter" else key if len(key) == 1 else ""
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=key,
            text=text,
            windowsVirtualKeyCode=code,
            **more,
        )
        self.call(
            "Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, **more
        )
        self.frame()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.frame()

    def mouse(self, kind, x, y, buttons=0):
        button = "none" if kind == "Moved" and not buttons else "left"
        self.call(
            "Input.dispatchMouseEvent",
            type=f"mouse{kind}", x=x, y=y, buttons=buttons, button=button, clickCount=1,
        )  # fmt: skip
        self.frame()

    def picture(self, path):
        self.frame()
        data = self.call("Page.captureScreenshot", format=path.suffix[1:], quality=82)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def opened(folder):
    """Run a browser whose files are in ``folder``, and give a page of it."""
    its_input, to_browser = os.pipe()
    from_browser, its_output = os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    start = (
        "import fcntl, os, sys\n"
        "ends = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]\n"
        "for number, end in enumerate(ends, 3):\n"
        "    os.dup2(end, number)\n"
        "os.execv(sys.argv[3], sys.argv[3:])\n"
    )
    browser = subprocess.Popen(
        [sys.executable, "-c", start, str(its_input), str(its_output), CHROMIUM, "--headless",
         "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}",
         "--no-first-run", "--hide-scrollbars", "--disable-dev-shm-usage"],
        pass_fds=(its_input, its_output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(its_input)
    os.close(its_output)
    try:
        page = Page(to_browser, from_browser)
        yield page
        page.call("Browser.close")
    finally:
        os.close(to_browser)
        os.close(from_browser)
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
