"""Kernels that a process runs without Numba: the same bits and refusals, and Numba's own where anything is unusual."""

import os
import platform
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest
from seeds import fresh_seed

pytest.importorskip("numba", reason="needs numba")
pytest.importorskip("trueno_simd", reason="its kernels are what is kept")

SEED = fresh_seed(__name__)
CALLS = """
import json, os, sys
import numpy as np
import trueno

rng = np.random.default_rng({seed})
x, y = (rng.standard_normal(1001).astype("f4") for _ in range(2))
rows = rng.standard_normal((7, 33)).astype("f4")
results = []
with trueno.use("simd"):
    results += [trueno.gelu(x), trueno.add(x, y), trueno.softmax(rows), trueno.sum(x), trueno.dot(x, y)]
    results += [trueno.add(rows, rows[0].copy()), trueno.mul(x, 2.5), trueno.clamp(x, -0.5, 0.25)]
    results += [trueno.exp(x.astype("f8")), trueno.argmax(rows), trueno.leaky_relu(x, slope=0.3)]
numba = "numba" in sys.modules
"""
RESULTS = CALLS + "print(numba, *(np.asarray(r).tobytes().hex() for r in results))"


def run(code: str, folder: Path, **variables: str) -> str:
    """What a child process prints, with this cache folder."""
    folder.chmod(0o700)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRUENO_", "NUMBA_"))}
    environment |= {"TRUENO_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path[1:])} | variables
    command = [sys.executable, "-c", code.replace("{seed}", str(SEED))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=folder)
    assert done.returncode == 0, f"seed {SEED}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache folder in which all of `CALLS` is compiled, and what the process that did so printed."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, run(RESULTS, folder)


def test_the_next_process_has_the_same_bits_without_numba(warm: tuple[Path, str]) -> None:
    folder, first = warm
    again = run(RESULTS, folder)
    assert first.split()[0] == "True" and again.split()[0] == "False"
    assert again.split()[1:] == first.split()[1:], f"seed {SEED}"


@pytest.mark.parametrize(
    "variables",
    [{"NUMBA_OPT": "2"}, {"TRUENO_DOOR": "off"}, {"TRUENO_MAX_ISA": "sse2"}],
    ids=lambda v: "=".join(*v.items()),
)
def test_numba_gives_the_kernels_where_something_is_unusual(warm: tuple[Path, str], variables: dict[str, str]) -> None:
    folder, _ = warm
    code = "import sys, numpy as np, trueno\nwith trueno.use('simd'):\n    trueno.add(np.ones(9, 'f4'), 1.0)\n"
    assert run(code + "print('numba' in sys.modules)", folder, **variables) == "True\n"


def test_a_damaged_file_is_a_miss(warm: tuple[Path, str]) -> None:
    folder, first = warm
    files = list(folder.rglob("k_*.o"))
    assert len(files) >= 10
    contents = [file.read_bytes() for file in files]
    try:
        for file, content in zip(files, contents, strict=True):
            middle = len(content) // 2
            file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        again = run(RESULTS, folder)
    finally:
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content)
    assert again.split() == first.split(), "Numba gave every kernel, and the same one"


def test_a_kernel_refuses_what_is_not_of_its_types(warm: tuple[Path, str]) -> None:
    folder, _ = warm
    code = (
        CALLS
        + """
from trueno.backend import Refused
assert not numba
kernel, clamp, out = trueno.add.plan(x, y, backend="simd"), trueno.clamp.plan(x, backend="simd"), np.empty_like(x)
locked = x.copy()
locked.flags.writeable = False
class Other(np.ndarray):
    pass
wide = np.empty(2002, "f4")
refused = [
    (x,), (x, y), (x, y, out, out), (x, y, None), (x.tolist(), y, out), (x.astype("f8"), y, out), (x, y, locked),
    (wide[::2], y, out), (x, y.astype(">f4"), out), (rows, y, out), (x.view(Other), y, out), (x, 2.0, out),
    (np.ma.array(x), y, out), (x, y, np.empty(1001, "i4")),
]
def refuses(kernel, *arguments):
    try:
        kernel(*arguments)
    except Refused:
        return True
    return False
assert [i for i, arguments in enumerate(refused) if not refuses(kernel, *arguments)] == []
assert kernel(locked, y, out) == 0 and np.array_equal(out, x + y)
assert kernel(x[:5], y, out) == -1, "lengths are the kernel's own check"
import pickle
assert kernel(pickle.loads(pickle.dumps(x)), y, out) == 0
noted = np.dtype("f4", metadata={"a": 1})
assert kernel(x.astype(noted), y, out.astype(noted)) == 0, "metadata mean nothing to a kernel"
winners = np.empty(7, "q"), np.empty(7, "l")
for found in winners:
    assert trueno.argmax.plan(rows, backend="simd")(rows, found) == 0
    assert np.array_equal(found, rows.argmax(-1))
for low in (-1, -1.0, np.float64(-1), np.float32(-1), np.int64(-1), np.int8(-1)):
    assert clamp(x, low, 1, out) == 0 and np.array_equal(out, np.clip(x, -1, 1))
assert refuses(clamp, x, "a", 1, out) and refuses(clamp, x, 10**400, 1, out) and refuses(clamp, x, 1j, 1, out)
assert "numba" not in sys.modules
"""
    )
    run(code, folder)


def test_threads_bring_numba_in_later(warm: tuple[Path, str]) -> None:
    folder, _ = warm
    code = (
        CALLS
        + """
assert not numba
large = rng.standard_normal(1_000_000).astype("f4")
with trueno.use("simd"):
    total = trueno.add(large, large)
    again = trueno.add(x, y)
assert np.array_equal(total, large + large) and np.array_equal(again, x + y)
assert "numba" in sys.modules
"""
    )
    run(code, folder)


def test_nothing_that_goes_wrong_when_a_kernel_is_kept_or_loaded_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trueno_simd.door import native

    def fails(*_: object) -> None:
        raise AttributeError("another Numba")

    asked = []
    monkeypatch.setattr(native, "_usual", lambda: asked.append("usual") or True)
    monkeypatch.setattr(native, "_untouched", lambda: asked.append("untouched") or True)
    monkeypatch.setattr(native, "_file", lambda name: tmp_path / name)
    monkeypatch.setattr(native, "_object_code", fails)
    native.keep("kernel", SimpleNamespace(code=1))
    assert asked == ["usual", "untouched"] and not list(tmp_path.iterdir())
    monkeypatch.setattr(native.sys, "modules", {})
    monkeypatch.setattr(native.store, "read", lambda path: b"no header")
    assert native.load("kernel") is None and len(asked) == 3


def test_a_kernel_is_loaded_once(warm: tuple[Path, str]) -> None:
    code = (
        CALLS
        + """
from trueno_simd.door import build
from trueno_simd.rows import rowprogram
loaded = len(build._loaded)
for _ in range(3):
    rowprogram.compiled.cache_clear()
    trueno.settings.reload()
    with trueno.use("simd"):
        trueno.gelu(x), trueno.add(x, y)
assert len(build._loaded) == loaded and not numba
"""
    )
    run(code, warm[0])


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux", reason="ELF of x86-64")
def test_machine_code_refers_to_everything_by_64_bits(warm: tuple[Path, str]) -> None:
    """LLVM maps sections of one object wherever there is room, and ends the process where 32 bits do not reach."""
    folder, _ = warm
    files = list(folder.rglob("*.o"))
    assert {file.name[:6] for file in files} > {"entry."}
    kinds: dict[int, str] = {}
    for file in files:
        body = file.read_bytes()
        code = body[body.index(b"\x7fELF") :]
        for section in llvm.ObjectFileRef.from_data(code).sections():
            name, data = (section.name() or b"").decode(), section.data()
            if name.startswith(".rela") and "eh_frame" not in name:
                kinds |= {word & 0xFFFFFFFF: f"{file.name} {name}" for _, word, _ in struct.iter_unpack("<QQq", data)}
    assert kinds and kinds.keys() == {1}, f"R_X86_64_64 is 1: {kinds}"


@pytest.mark.skipif(sys.platform != "linux", reason="the C library's constants of Linux on x86")
def test_the_default_floating_point_environment(warm: tuple[Path, str]) -> None:
    from tests.hostile import environments

    if not environments.available():
        pytest.skip("the registers of this CPU are not known")
    folder, _ = warm
    root = str(Path(__file__).parents[3])
    code = (
        CALLS
        + f"""
sys.path.insert(0, {root!r})
from tests.hostile import environments
assert not numba
kernel, out, wanted = trueno.mul.plan(x, y, backend="simd"), np.empty_like(x), np.empty_like(x)
kernel(x, y, wanted)
for mode in ("up", "down", "zero", "both"):
    environments.change(mode)
    before = environments.control()
    assert kernel(x, y, out) == 0
    after = environments.control()
    environments.change("")
    assert before == after and out.tobytes() == wanted.tobytes(), mode
import ctypes
libm = ctypes.CDLL("libm.so.6")
libm.feenableexcept(4)  # a division by zero would end the process
assert kernel(x, y, out) == 0
before = environments.control()
libm.fedisableexcept(4)
assert before != environments.control() and out.tobytes() == wanted.tobytes(), "traps stay the caller's"
"""
    )
    run(code, folder)
