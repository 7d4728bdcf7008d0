"""Ctrl-C while simd starts, compiles, computes and writes its cache: the process works on, and so does the next one."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from .attack import Tally
from .children import SAID, finish, folder, run, start

SHARE = 2.0
LIMIT = 400.0
MOMENTS = ("compile", "compile", "kernel", "write")
WORK = f'''
from pathlib import Path
moment, seed, place = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
warnings.simplefilter("error", trueno.TruenoWarning)  # of a backend that failed and one that took over
rng = np.random.default_rng(seed)
names = ["exp", "relu", "softmax", "sum", "silu", "layer_norm", "variance", "log1p", "sigmoid", "max"]
rng.shuffle(names)
large = np.ones((1200, 1200), "f4")
interrupted = 0

def compute():
    if moment == "kernel":
        assert (trueno.matmul(large, large)[::97] == 1200).all()
        near("a long softmax", trueno.softmax(np.tile(LONG, 8) / 16), soft(np.tile(LONG, 8) / 16), 2000)
    else:
        name = names[int(rng.integers(len(names)))]
        given = [np.ones_like(X), np.zeros_like(X)] if name == "layer_norm" else []
        x = X.astype(["f4", "f8"][int(rng.integers(2))])
        getattr(trueno, name)(x, *[g.astype(x.dtype) for g in given])

def work():
    global interrupted
    while not (place / "stop").exists():
        try:
            while not (place / "stop").exists():
                compute()
        except KeyboardInterrupt:
            interrupted += 1

if moment in ("kernel", "write"):
    trueno.add(X, X)
if moment == "kernel":
    compute()
(place / "ready").touch()
while True:
    try:
        work()
        break
    except KeyboardInterrupt:
        interrupted += 1
signal_over = __import__("signal").signal(2, __import__("signal").SIG_IGN)
sound()
for name in ("softmax", "sum", "exp"):
    decision = trueno.explain(name, X)
    assert decision.chosen == "simd", f"{{name}} after {{interrupted}} interrupts: {{decision}}"
print("{SAID}", interrupted)
'''
AFTER = f'''
warnings.simplefilter("error", trueno.TruenoWarning)
sound()
assert trueno.explain("softmax", X).chosen == "simd", trueno.explain("softmax", X)
print("{SAID}")
'''


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    moment = str(rng.choice(MOMENTS))
    seed, signals = int(rng.integers(1 << 30)), int(rng.integers(8, 40))
    waits = rng.exponential(float(rng.choice([0.02, 0.1, 0.3])), signals)
    with folder() as root:
        place = root / "cache"
        child = start(WORK, place, moment, str(seed), str(root))
        try:
            sent = _interrupt(child, moment, root, waits)
            (root / "stop").touch()
            finish(child, 300).must_be_sound(f"{moment}, seed {seed}: after {sent} interrupts")
        finally:
            child.kill()
            child.wait()
        run(AFTER, place).must_be_sound(f"{moment}, seed {seed}: the process after one with {sent} interrupts")
        tally.states += sent
        tally.calls += 20


def _interrupt(child, moment: str, root: Path, waits: np.ndarray) -> int:
    """Send SIGINT once for each wait; when writing is meant, as soon as something new lies in the cache."""
    stop = time.monotonic() + 120
    while not (root / "ready").exists() and child.poll() is None and time.monotonic() < stop:
        time.sleep(0.01)
    sent, seen = 0, set()
    for wait in waits:
        end = time.monotonic() + float(wait)
        if moment == "write":
            end = time.monotonic() + 2
            while time.monotonic() < end and (now := _names(root / "cache")) <= seen:
                time.sleep(0.0005)
            seen = now
            time.sleep(float(wait) / 100)
        else:
            time.sleep(max(0.0, end - time.monotonic()))
        if child.poll() is not None:
            break
        os.kill(child.pid, signal.SIGINT)
        sent += 1
    return sent


def _names(place: Path) -> set[str]:
    collected = set()
    for where, _, names in os.walk(place):
        collected.update(f"{where}/{name}" for name in names)
    return collected
