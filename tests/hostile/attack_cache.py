"""Damage in simd's cache, odd folders, processes that are killed while they fill it: right numbers, no crash."""

import pickle
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from .attack import Tally
from .children import CHECKS, SAID, finish, folder, run, start

SHARE = 2.0
LIMIT = 400.0
MOST = 5
"""Compiled files that are damaged in a case: each is compiled anew."""
READ = f'''
warnings.simplefilter("ignore")
with trueno.use("simd"):
    sound()
print("{SAID}")
'''
ODD = 'trueno.add(X, X)\nsound(("add", "softmax"))\nprint("' + SAID + '")\n'


@cache
def _full() -> Path:
    """A cache that a sound process filled; this process removes it when it ends."""
    import atexit

    path = Path(tempfile.mkdtemp(prefix="trueno-hostile-full-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    run(READ, path).must_be_sound("the first process")
    return path


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    how = str(rng.choice(["damage", "folder", "several"], p=[0.75, 0.15, 0.1]))
    {"damage": _damage, "folder": _folder, "several": _several}[how](rng, tally)


def _damage(rng: np.random.Generator, tally: Tally) -> None:
    """Some files are damaged, compiled ones most of all; two processes read them, one after the other."""
    with folder() as root:
        place = root / "cache"
        shutil.copytree(_full(), place)
        files = sorted(p for p in place.rglob("*") if p.is_file())
        code = [path for path in files if path.suffix == ".nbc"]
        said = []
        for path in dict.fromkeys([*_some(rng, code, MOST), *_some(rng, files, 2)]):
            name = str(rng.choice(list(DAMAGE), p=WEIGHTS))
            DAMAGE[name](rng, path, files)
            said.append(f"{path.relative_to(place)}: {name}")
            tally.states += 1
        for which in ("first", "second"):
            tally.calls += len(CHECKS)
            run(READ, place).must_be_sound(f"the {which} process after {said}")


def _some(rng: np.random.Generator, paths: list[Path], most: int) -> list[Path]:
    return [paths[i] for i in rng.permutation(len(paths))[:most]]


def _flip(rng: np.random.Generator, path: Path, _: list[Path]) -> None:
    raw = bytearray(path.read_bytes())
    for at in rng.integers(0, len(raw), int(rng.choice([1, 1, 1, 2, 16]))) if raw else ():
        raw[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(raw)


def _cut(rng: np.random.Generator, path: Path, _: list[Path]) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: int(rng.integers(len(raw) + 1))])


def _zeros(rng: np.random.Generator, path: Path, _: list[Path]) -> None:
    """As after a power failure: a page of the file was never written."""
    raw = bytearray(path.read_bytes())
    at = 4096 * int(rng.integers(len(raw) // 4096 + 1))
    raw[at : at + 4096] = bytes(len(raw[at : at + 4096]))
    path.write_bytes(raw)


def _other(rng: np.random.Generator, path: Path, files: list[Path]) -> None:
    alike = [p for p in files if p.suffix == path.suffix and p.is_file()]
    if alike:
        path.write_bytes(alike[int(rng.integers(len(alike)))].read_bytes())


def _replaced(
    content: Callable[[np.random.Generator], bytes],
) -> Callable[[np.random.Generator, Path, list[Path]], None]:
    return lambda rng, path, _: (path.write_bytes(content(rng)), None)[1]


def _folder_there(rng: np.random.Generator, path: Path, _: list[Path]) -> None:
    path.unlink()
    path.mkdir()


def _link(rng: np.random.Generator, path: Path, _: list[Path]) -> None:
    path.unlink()
    path.symlink_to(path if rng.random() < 0.5 else path.with_name("nothing"))


DAMAGE = {
    "flip": _flip,
    "cut": _cut,
    "zeros": _zeros,
    "another's": _other,
    "longer": lambda rng, path, _: (path.write_bytes(path.read_bytes() + b"\0" * 7), None)[1],
    "noise": _replaced(lambda rng: rng.integers(0, 256, 5000, np.uint8).tobytes()),
    "pickle": _replaced(lambda rng: pickle.dumps((None, [1, 2, "x"]))),
    "recursion": _replaced(lambda rng: b"]" + b"(" * 100_000),
    "folder": _folder_there,
    "link": _link,
}
WEIGHTS = [0.6, 0.1] + [0.3 / (len(DAMAGE) - 2)] * (len(DAMAGE) - 2)


def _folder(rng: np.random.Generator, tally: Tally) -> None:
    """Paths that are not folders, or cannot be trusted: every call works without a cache."""
    with folder() as root:
        place, odd = root / "cache", int(rng.integers(10))
        if odd == 0:
            place.write_text("a file")
        elif odd == 1:
            place.mkdir(0o777)
            place.chmod(0o777)
        elif odd == 2:
            place.mkdir()
            place.chmod(0o500)
        elif odd == 3:
            place.symlink_to(place)
        elif odd == 4:
            place.symlink_to(root / "nothing")
        elif odd == 5:
            place = root / "file" / "inside"
            place.parent.write_text("")
        elif odd == 6:
            place = root / "a b" / "ü\n;'\"$x" / ("x" * 100)
        elif odd == 7:
            place = root / ("x" * 300)
        elif odd == 8:
            place.mkdir()
            for name in ("simd", "index", "probes", "calibration"):
                (place / name).write_text("a file")
        else:
            place.mkdir()
            (place / "simd").symlink_to("/proc/self")
        tally.states += 1
        tally.calls += 3
        run(ODD, place).must_be_sound(f"odd folder {odd}")


def _several(rng: np.random.Generator, tally: Tally) -> None:
    """Processes that fill a new cache at once, half of them killed on the way."""
    with folder() as root:
        place = root / "cache"
        children = [start(READ, place) for _ in range(4)]
        for child in children[:2]:
            time.sleep(float(rng.uniform(0.3, 3)))
            child.send_signal(signal.SIGKILL)
        for k, child in enumerate(children):
            ended = finish(child, 300)
            if k >= 2:
                ended.must_be_sound("a process beside others that were killed")
        run(READ, place).must_be_sound("a process after others that were killed")
        tally.states += 4
        tally.calls += 3 * len(CHECKS)
