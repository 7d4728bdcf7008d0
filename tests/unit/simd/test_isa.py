"""The level is the CPU's, less the cap, and what Numba compiles really keeps to it.

Numba's target is fixed once a process, so each level is tried in a process of its own.
"""

import os
import subprocess
import sys

import pytest

pytest.importorskip("llvmlite", reason="needs llvmlite")
from trueno_simd import isa

ON_X86 = isa.detect().level in isa.X86
WITHIN = isa.X86[: isa.X86.index(isa.detect().level) + 1] if ON_X86 else ()


def python(code: str, **variables: str) -> str:
    words = ("TRUENO_MAX_ISA", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")
    environment = {k: v for k, v in os.environ.items() if k not in words} | variables
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASSEMBLY = """
from trueno_simd import isa
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
    code = "import sys; from trueno_simd import isa; isa.level(); isa.apply(); print('numba' in sys.modules)"
    assert python(code) == "False"


def test_importing_asks_nothing() -> None:
    assert python("import sys; from trueno_simd import isa; print('llvmlite' in sys.modules)") == "False"


@pytest.mark.parametrize("name", ["sse2", "avx", "avx2", "avx512", "neon"])
def test_a_cap_never_raises_the_level(name: str) -> None:
    got = python("from trueno_simd import isa; print(isa.level(), isa.detect().level)", TRUENO_MAX_ISA=name)
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
    code = f"{before}\nfrom trueno_simd import isa\nisa.cap('sse2')\nprint(isa.apply() or 'done', isa.level())"
    said = python(code)
    assert outcome in said
    assert said.split()[-1] == ("sse2" if outcome == "done" else isa.detect().level)


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
    assert python(first + "from trueno_simd import isa; print(isa.level())", **variables) == level


def test_an_unknown_cap_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match='"avx52" is not a level; did you mean "avx512"'):
        isa.cap("avx52")
    with pytest.raises(ValueError, match="levels: sse2, avx, avx2, avx512, neon"):
        isa.cap("?")


def test_a_given_cap_wins_over_the_variable() -> None:
    code = "from trueno_simd import isa; isa.cap(None); print(isa.level() == isa.detect().level)"
    assert python(code, TRUENO_MAX_ISA="sse2") == "True"


def test_features_shrink_with_the_level() -> None:
    host = isa.detect()
    assert host.level in (*isa.LEVELS, isa.GENERIC)
    assert host.has() and host.has(*host.features)
    for name in WITHIN[:-1]:
        got = python("from trueno_simd import isa; print(*isa.current().features)", TRUENO_MAX_ISA=name)
        assert set(got.split()) <= host.features
        assert not any(f.startswith("avx512") for f in got.split())


@pytest.mark.parametrize("name, bits", [("sse2", 128), ("avx", 256), ("avx2", 256), ("avx512", 512), ("neon", 128)])
def test_registers_and_lanes(name: str, bits: int) -> None:
    assert [isa.lanes(name, size) for size in (1, 2, 4, 8)] == [bits // 8, bits // 16, bits // 32, bits // 64]
    assert isa.registers(name)
