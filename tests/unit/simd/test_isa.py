"""The level is the CPU's, less the cap, and what Numba compiles really keeps to it.

Numba's target is fixed once a process, so each level is tried in a child process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite", reason="needs llvmlite")
from trueno_simd.llvm import isa

ON_X86 = isa.detect().level in isa.X86
WITHIN = isa.X86[: isa.X86.index(isa.detect().level) + 1] if ON_X86 else ()


def python(code: str, **variables: str) -> str:
    words = ("TRUENO_MAX_ISA", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_DISABLE_JIT")
    environment = {k: v for k, v in os.environ.items() if k not in words} | variables
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASSEMBLY = """
from trueno_simd.llvm import isa
assert isa.apply() is None
import numba
@numba.njit("void(f4[::1], f4[::1])", fastmath={"contract"}, _nrt=False)
def relu(x, out):
    for i in range(x.size):
        out[i] = x[i] if x[i] > 0 else 0
text = relu.inspect_asm(relu.signatures[0])
print(isa.level(), *(word for word in ("xmm", "ymm", "zmm") if word in text))
"""


@pytest.mark.parametrize("name", WITHIN)
def test_compiled_code_keeps_to_the_cap(name: str) -> None:
    level, *seen = python(ASSEMBLY, TRUENO_MAX_ISA=name).split()
    assert level == name
    above = {"sse2": {"ymm", "zmm"}, "avx": {"zmm"}, "avx2": {"zmm"}, "avx512": set()}[name]
    assert not above & set(seen)
    if name != "avx512":  # there, LLVM's tuning for the host decides between ymm and zmm
        assert isa.registers(name) in seen


def test_asking_imports_no_numba() -> None:
    code = "import sys; from trueno_simd.llvm import isa; isa.level(); isa.apply(); print('numba' in sys.modules)"
    assert python(code) == "False"


def test_importing_asks_nothing() -> None:
    assert python("import sys; from trueno_simd.llvm import isa; print('llvmlite' in sys.modules)") == "False"


@pytest.mark.parametrize("name", ["sse2", "avx", "avx2", "avx512", "neon"])
def test_a_cap_never_raises_the_level(name: str) -> None:
    got = python("from trueno_simd.llvm import isa; print(isa.level(), isa.detect().level)", TRUENO_MAX_ISA=name)
    level, host = got.split()
    if ON_X86 and name in isa.X86:
        assert isa.X86.index(level) == min(isa.X86.index(name), isa.X86.index(host))
    else:
        assert level == host


@pytest.mark.skipif(len(WITHIN) < 2, reason="this CPU has no level below its own to cap to")
@pytest.mark.parametrize(
    "before, outcome",
    [
        ("", "done"),
        ("import numba", "done"),
        ("import numba\n@numba.njit\ndef f(x): return x", "came too late"),
    ],
)
def test_apply_works_until_numba_has_a_target(before: str, outcome: str) -> None:
    code = f"{before}\nfrom trueno_simd.llvm import isa\nisa.cap('sse2')\nprint(isa.apply() or 'done', isa.level())"
    output = python(code)
    assert outcome in output
    assert output.split()[-1] == ("sse2" if outcome == "done" else isa.detect().level)


@pytest.mark.skipif(not ON_X86, reason="the names are those of x86")
@pytest.mark.parametrize(
    "variables, level",
    [
        ({"NUMBA_CPU_NAME": "generic"}, "sse2"),
        ({"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""}, "sse2"),
        ({"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+avx"}, "avx"),
        ({"NUMBA_CPU_NAME": "core2", "NUMBA_CPU_FEATURES": ""}, "sse2"),  # not in the table: the floor
        ({"NUMBA_ENABLE_AVX": "0"}, "sse2"),
    ],
)
@pytest.mark.parametrize("first", ["", "import numba\n"])
def test_the_users_own_numba_settings_count(variables: dict[str, str], level: str, first: str) -> None:
    if isa.detect().level == "sse2" and level != "sse2":
        pytest.skip(f"this CPU has no {level}")
    assert python(first + "from trueno_simd.llvm import isa; print(isa.level())", **variables) == level


def test_an_unknown_cap_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match='"avx52" is not a level; did you mean "avx512"'):
        isa.cap("avx52")
    with pytest.raises(ValueError, match="levels: sse2, avx, avx2, avx512, neon"):
        isa.cap("?")


def test_a_given_cap_wins_over_the_variable() -> None:
    code = "from trueno_simd.llvm import isa; isa.cap(None); print(isa.level() == isa.detect().level)"
    assert python(code, TRUENO_MAX_ISA="sse2") == "True"


def test_features_shrink_with_the_level() -> None:
    host = isa.detect()
    assert host.level in (*isa.LEVELS, isa.GENERIC)
    assert host.has() and host.has(*host.features)
    for name in WITHIN[:-1]:
        got = python("from trueno_simd.llvm import isa; print(*isa.current().features)", TRUENO_MAX_ISA=name)
        assert set(got.split()) <= host.features
        assert not any(f.startswith("avx512") for f in got.split())


@pytest.mark.parametrize("name, bits", [("sse2", 128), ("avx", 256), ("avx2", 256), ("avx512", 512), ("neon", 128)])
def test_registers_and_lanes(name: str, bits: int) -> None:
    assert [isa.lanes(name, size) for size in (1, 2, 4, 8)] == [bits // 8, bits // 16, bits // 32, bits // 64]
    assert isa.registers(name)


CHANGES = """
import os, sys
import numpy as np, trueno
from trueno_simd.llvm import isa
x = np.linspace(-3, 3, 1000, dtype=np.float32)
w = np.random.default_rng(1).standard_normal((8, 256)).astype(np.float32)
with trueno.use("reference"):
    q = trueno.quantize(w, "q8_0")
    wanted = trueno.dequantize(q).astype(np.float64).sum(1) * 127  # a number that activations of 8 bits hold exactly
seen = []
def told(said, wanted):
    assert np.allclose(said, wanted, rtol=1e-5, atol=1e-5), (said, wanted)
    seen.append(isa.level())
with trueno.use("simd"):
    told(trueno.add(x, x), 2 * x)
    os.environ["NUMBA_NUM_THREADS"] = "2"  # any variable of Numba's: it reads all of them again
    os.environ["TRUENO_MAX_ISA"] = isa.detect().level
    told(trueno.exp(x), np.exp(x.astype(np.float64)))
    os.environ["NUMBA_CPU_NAME"] = "generic"
    told(q @ np.full(256, 127, np.float32), wanted)
    isa.cap(None)
    told(trueno.tanh(x), np.tanh(x.astype(np.float64)))
print(*seen)
"""


@pytest.mark.skipif(len(WITHIN) < 2, reason="this CPU has no level below its own to cap to")
@pytest.mark.parametrize("name", sorted({WITHIN[0], WITHIN[-2]}) if len(WITHIN) > 1 else [])
def test_nothing_changes_the_level_once_numba_has_its_target(name: str, tmp_path: Path) -> None:
    """Numba reads its variables again with each compilation; instructions that the target lacks abort the process."""
    tmp_path.chmod(0o700)
    assert python(CHANGES, TRUENO_MAX_ISA=name, TRUENO_CACHE_DIR=str(tmp_path)).split() == [name] * 4


@pytest.mark.skipif(not ON_X86, reason="the names are those of x86")
def test_a_target_of_somebody_elses_is_read_and_not_its_variables() -> None:
    code = """
import os, numba
@numba.njit
def f(x): return x + 1
f(1)
for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
    del os.environ[name]
@numba.njit
def g(x): return x + 2
g(1)
from trueno_simd.llvm import isa
print(isa.level())
"""
    assert python(code, NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="") == "sse2"  # whose CPU nobody knows now
    expected = isa.detect().level if isa.detect().level in ("sse2", "avx") else "avx2"
    assert python(code, NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="+avx2,+fma,+f16c,+avx,+ssse3,+sse4.1") == expected


def test_without_a_compiler_there_is_a_sentence() -> None:
    code = "from trueno_simd.backend import SimdBackend; print(SimdBackend().probe(1).reason)"
    for first in ("", "import numba\n"):
        output = python(first + code, NUMBA_DISABLE_JIT="1")
        assert output == "Numba compiles nothing (NUMBA_DISABLE_JIT=1); unset that variable"
