"""Compiled kernels on disk: each is found again by what it is, never given out for another, and never damaged."""

import os
import pickle
import random
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("numba", reason="needs numba")
from seeds import fresh_seed
from trueno_simd.codecache.kernel_cache import _Files

SSE2, AVX2 = ("x86_64-unknown-linux-gnu", "x86-64", ""), ("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2")


def key(target, code="3a"):
    return ("(float32[::1],)", target, (code, ""))


def test_two_processes_that_compile_for_two_targets_keep_both(tmp_path):
    """Neither finds anything, then both write: with numbered files both took the first number."""
    one, other = _Files(tmp_path, "kernel"), _Files(tmp_path, "kernel")
    assert one.load(key(SSE2)) is None and other.load(key(AVX2)) is None
    one.save(key(SSE2), "code for SSE2")
    other.save(key(AVX2), "code for AVX2")
    for files in (one, other):
        assert files.load(key(SSE2)) == "code for SSE2"
        assert files.load(key(AVX2)) == "code for AVX2"
        assert files.load(key(AVX2, code="3b")) is None


def test_a_file_that_holds_another_kernel_is_a_miss(tmp_path):
    files = _Files(tmp_path, "kernel")
    files.save(key(AVX2), "code for AVX2")
    files.path(key(AVX2)).rename(files.path(key(SSE2)))
    assert files.load(key(SSE2)) is None
    files.save(key(SSE2), "code for SSE2")
    assert files.load(key(SSE2)) == "code for SSE2"


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    files = _Files(tmp_path, "kernel")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        files.save(key(SSE2), "code for SSE2")
    assert list(tmp_path.iterdir()) == []


class Bomb:
    """Does harm when it is unpickled, as machine code does that is run."""

    def __reduce__(self):
        return (pytest.fail, ("a damaged file was unpickled",))


def test_what_is_damaged_is_not_unpickled_and_is_replaced(tmp_path):
    files, seed = _Files(tmp_path, "kernel"), fresh_seed()
    print(f"seed {seed}")
    draw = random.Random(seed)
    files.save(key(AVX2), ("code", bytes(range(256)) * 8))
    path = files.path(key(AVX2))
    whole = path.read_bytes()
    damaged = [whole[:n] for n in {0, 1, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(100))}]
    for _ in range(1000):
        at = draw.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        damaged.append(bytes(flipped))
    damaged += [whole + b"\0", pickle.dumps(Bomb()), pickle.dumps((key(AVX2), Bomb()))]
    for content in damaged:
        path.write_bytes(content)
        assert files.load(key(AVX2)) is None
    files.save(key(AVX2), "code for AVX2")
    assert files.load(key(AVX2)) == "code for AVX2"


SUM = """
import numpy as np, trueno
x = np.linspace(-3, 3, 1000, dtype=np.float32)
with trueno.use("simd"):
    assert np.allclose(trueno.tanh(x), np.tanh(x.astype(np.float64)), rtol=1e-5)
"""


def process(code, cache, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRUENO_", "NUMBA_"))} | variables
    environment |= {"TRUENO_CACHE_DIR": str(cache), "TRUENO_PROBE": "off", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )


def succeeds(code, cache, **variables):
    done = process(code, cache, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def cache(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


def compiled(cache):
    """Every file of a kernel's machine code, and its content: Numba's, and the one for processes without Numba."""
    return {path: path.read_bytes() for path in cache.rglob("k_*") if path.suffix in (".nbc", ".o")}


def test_a_damaged_kernel_is_compiled_anew(cache):
    """Bits flipped in machine code, all else being as it was: unpickled it would look good, and be run."""
    succeeds(SUM, cache, PYTHONDONTWRITEBYTECODE="")
    good = compiled(cache)
    assert good and not list(cache.rglob("*.pyc")), "nothing checks bytecode"
    for path, content in good.items():
        spoilt, begin = bytearray(content), content.find(b"\x7fELF") + 64  # elsewhere the format is another
        for at in range(begin, min(begin + 2048, len(content)), 8):
            spoilt[at] ^= 0x10
        path.write_bytes(spoilt)
        good[path] = spoilt
    succeeds(SUM, cache)
    again = compiled(cache)
    assert again.keys() == good.keys() and all(again[path] != spoilt for path, spoilt in good.items())
    succeeds(SUM, cache)
    assert compiled(cache) == again


OPTIONS = """
import os
from numba import int64
from trueno_simd.codecache import store
from trueno_simd.codecache.entry import kernel_entry
def plus_one(x):
    return x + 1
def files(**variables):
    os.environ.update({f"NUMBA_{name}": value for name, value in variables.items()})
    assert kernel_entry(int64(int64))(plus_one)(1) == 2
    return len(list(store.folder().glob("*.nbc")))
assert files() == 1
assert files(NUM_THREADS="1", THREADING_LAYER="workqueue", SHOW_HELP="1", DEBUG_CACHE="0", CPU_NAME="generic") == 1
for made, (name, value) in enumerate([("LOOP_VECTORIZE", 0), ("SLP_VECTORIZE", 1), ("OPT", 2), ("BOUNDSCHECK", 1)]):
    assert files(**{name: str(value)}) == made + 2, name
    assert files() == made + 2, name
"""


def test_options_that_change_code_are_part_of_the_name(cache):
    """And those that do not are not: another number of threads is no reason to compile again."""
    succeeds(OPTIONS, cache)


def test_a_cache_of_other_options_is_not_used(cache):
    succeeds(SUM, cache, NUMBA_LOOP_VECTORIZE="0")
    slow = compiled(cache)
    succeeds(SUM, cache)
    both = compiled(cache)
    assert [path.suffix for path in slow] == [".nbc"], "no process without Numba may use it"
    assert sorted(path.suffix for path in both) == [".nbc", ".nbc", ".o"] and both | slow == both
    succeeds(SUM, cache)
    assert compiled(cache) == both


def test_without_optimizing_it_works_and_says_nothing(cache):
    succeeds(SUM, cache, NUMBA_OPT="0")


POSIX = pytest.mark.skipif(os.name != "posix", reason="locks and owners are POSIX's")
NOWHERE = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
"""


@pytest.fixture
def elsewhere(tmp_path):
    """The system's temporary folder of a process whose cache is a file."""
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o700)
    (tmp_path / "cache").write_text("")
    return folder


def test_a_temporary_folder_goes_with_its_process(elsewhere):
    child = """
import os
if hasattr(os, "fork"):
    here = store.folder()
    child = os.fork()
    assert (store.folder() == here) == bool(child)
    if not child:
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0 and here.is_dir()
"""
    code = NOWHERE + SUM + "from trueno_simd.codecache import store\nassert list(store.folder().glob('*.nbc'))" + child
    succeeds(code, elsewhere.parent / "cache", TMPDIR=str(elsewhere), TEMP=str(elsewhere))
    assert list(elsewhere.iterdir()) == []


@POSIX
def test_what_a_killed_process_left_is_removed_by_the_next(elsewhere):
    code = NOWHERE + "from trueno_simd.codecache import store\nprint(store.folder())\n"
    variables = {"TMPDIR": str(elsewhere)}
    killed = process(code + "os.kill(os.getpid(), signal.SIGKILL)", elsewhere.parent / "cache", **variables)
    assert killed.returncode == -signal.SIGKILL
    (left,) = elsewhere.iterdir()
    alive = elsewhere / "trueno-simd-alive"
    alive.mkdir()
    lock = alive / ".lock"
    lock.write_text("")
    import fcntl

    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (elsewhere / "trueno-simd-anothers").mkdir()
        succeeds(code, elsewhere.parent / "cache", **variables)
        assert left.is_dir(), "it may just have been made"
        for path in (left / ".lock", lock):
            os.utime(path, (time.time() - 1000,) * 2)
        succeeds(code, elsewhere.parent / "cache", **variables)
        assert {p.name for p in elsewhere.iterdir()} == {"trueno-simd-alive", "trueno-simd-anothers"}
