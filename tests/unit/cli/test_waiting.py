"""The line on a terminal while a kernel compiles: there for long ones, gone afterwards, and nowhere else."""

import os
import subprocess
import sys
from threading import Event
from types import SimpleNamespace

import pytest
from fake_plugin import write
from trueno import waiting
from trueno.settings import settings


class Terminal:
    """A stream that says that it is a terminal."""

    def __init__(self, tty=True):
        self.text, self.written, self.tty = "", Event(), tty

    def isatty(self):
        return self.tty

    def write(self, text):
        self.text += text
        self.written.set()

    def flush(self):
        pass


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(waiting, "sys", SimpleNamespace(stderr=stream, modules={}))
    monkeypatch.setattr(waiting, "DELAY", 0.0)
    monkeypatch.setattr(waiting, "_silent", False)
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def test_a_line_comes_and_goes(terminal):
    with waiting.announced("matmul", "simd"):
        assert terminal.written.wait(30)
        line = terminal.text
    assert line == "\rtrueno: compiling matmul for simd, once …"
    assert terminal.text == line + "\r" + " " * (len(line) - 1) + "\r"


def test_a_fast_one_has_none(terminal, monkeypatch):
    monkeypatch.setattr(waiting, "DELAY", 60.0)
    with waiting.announced("matmul", "simd"):
        pass
    assert terminal.text == ""


def test_an_error_clears_it_too(terminal):
    with pytest.raises(KeyboardInterrupt), waiting.announced("x" * 300, "si\x1bmd"):  # noqa: PT012
        assert terminal.written.wait(30)
        assert len(terminal.text) == 80 and "\x1b" not in terminal.text
        raise KeyboardInterrupt
    assert terminal.text.endswith("\r") and waiting._showing is None


def test_one_line_for_all_threads(terminal):
    with waiting.announced("outer", "simd"):
        assert terminal.written.wait(30)
        before = terminal.text
        inner = waiting.announced("inner", "simd")
        with inner:
            inner._timer.join(30)
        assert terminal.text == before
    assert "inner" not in terminal.text


def test_nowhere_else(terminal, monkeypatch):
    assert waiting.wanted()
    settings.override("TRUENO_NOTICE", False)
    try:
        assert not waiting.wanted()
    finally:
        settings.override("TRUENO_NOTICE", None)
    terminal.tty = False
    assert not waiting.wanted()
    terminal.tty = True
    waiting.silence()
    assert not waiting.wanted()
    monkeypatch.setattr(waiting, "_silent", False)
    for stream, modules in ((terminal, {"pytest": pytest}), (None, {}), (object(), {})):
        monkeypatch.setattr(waiting, "sys", SimpleNamespace(stderr=stream, modules=modules))
        assert not waiting.wanted()


@pytest.mark.skipif(os.name != "posix", reason="a terminal of POSIX")
@pytest.mark.parametrize("notice", ["on", "off"])
def test_on_a_real_terminal(tmp_path, notice):
    """A plugin whose kernel takes a while; the call after it has a plan, and shows nothing."""
    import pty

    write(
        tmp_path,
        "slow",
        "def kernel(self, call):\n    time.sleep(0.5)\n    return super().kernel(call)",
        module="import time\n",
    )
    code = (
        "import numpy as np, trueno, trueno.waiting\ntrueno.waiting.DELAY = 0.05\nx = np.ones(3)\n"
        "trueno.add(x, x)\nimport sys\nsys.stderr.write('then')\ntrueno.add(x, x)\n"
    )
    env = {n: v for n, v in os.environ.items() if not n.startswith("TRUENO_") and n != "FORCE_CPU"}
    env |= {
        "PYTHONPATH": str(tmp_path), "TRUENO_CACHE_DIR": str(tmp_path / "cache"), "TRUENO_AUTOLOAD": "slow",
        "TRUENO_BACKEND": "slow", "TRUENO_NOTICE": notice, "PYTHONIOENCODING": "utf-8", "COLUMNS": "80",
    }  # fmt: skip
    master, slave = pty.openpty()
    try:
        done = subprocess.run([sys.executable, "-c", code], stderr=slave, env=env, check=False, timeout=120)
        shown = os.read(master, 4096).decode()
    finally:
        os.close(master)
        os.close(slave)
    line = "\rtrueno: compiling add for slow, once …"
    wanted = f"{line}\r{' ' * (len(line) - 1)}\rthen" if notice == "on" else "then"
    assert done.returncode == 0 and shown == wanted
