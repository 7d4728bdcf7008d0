"""The vector instructions that compiled kernels may use: the CPU's, limited by the requested level.

The level decides code: if a kernel names an instruction itself (VNNI's dot product, `vscalef`) LLVM
*aborts the process* when the target lacks it, so the answers here must be what Numba will really
compile for, not merely what the CPU supports.  The answers therefore also read Numba's own settings.

Numba fixes its target once a process, when its first dispatcher is made.  `apply()` must come before
that; until then it works whether or not `numba` has been imported, afterwards it says why it does not.  From then on
the answers are those of the target that was made, whatever becomes of the variables (`trueno_simd.llvm.target`).
Numba is imported here only to cap it, and LLVM is asked only on first use: `import trueno_simd.llvm.isa` costs nothing.
"""

import difflib
import os
import platform
from dataclasses import dataclass
from functools import cache

from trueno_simd.llvm import target

X86 = ("sse2", "avx", "avx2", "avx512")  # each includes the ones before it
LEVELS = (*X86, "neon")  # the allowed values of TRUENO_MAX_ISA
GENERIC = "generic"  # neither x86 nor ARM: LLVM vectorizes as it likes, no kernel names an instruction
WASM = "wasm"  # WebAssembly's 128 bits, for which a child process compiles (`trueno_simd.wasm`); no instruction

VARIABLE = "TRUENO_MAX_ISA"

# The CPU for which Numba compiles when a level is capped.  `avx512` has no entry: the host's own
# name stays there (x86-64-v4 prefers 256-bit vectors, and knows neither VNNI nor BF16).
_CPU = {"sse2": "x86-64", "avx": "sandybridge", "avx2": "x86-64-v3"}

# The features of each named CPU that kernels ask about.
_SSE2 = frozenset({"sse2"})
_AVX = _SSE2 | {"ssse3", "sse4.1", "avx"}
_AVX2 = _AVX | {"avx2", "fma", "f16c"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
_GRANTS = {
    "generic": _SSE2,
    "x86-64": _SSE2,
    "x86-64-v2": _SSE2 | {"ssse3", "sse4.1"},
    "sandybridge": _AVX,
    "x86-64-v3": _AVX2,
    "x86-64-v4": _AVX512,
}
_MORE = frozenset(
    {"avx512vnni", "avx512vbmi", "avx512bf16", "avxvnni", "amx-tile", "amx-bf16", "amx-int8"}
)  # of some CPUs
_ASKED = _AVX512 | _MORE | {"neon", "dotprod", "i8mm", "bf16"}


@dataclass(frozen=True, slots=True)
class Isa:
    """A level, the LLVM features of interest that come with it, and the CPU name they were read for."""

    level: str
    features: frozenset[str]
    cpu: str

    def has(self, *features: str) -> bool:
        return self.features.issuperset(features)


_cap: str | None = None
_cap_given = False
_crossing: Isa | None = None


def cap(name: str | None) -> None:
    """Cap the level (None: no cap), instead of reading TRUENO_MAX_ISA.  Call it before `apply()`."""
    global _cap, _cap_given
    _cap = None if name is None else _valid(name)
    _cap_given = True


def detect() -> Isa:
    """What this machine's CPU supports, whatever the cap."""
    return _host()


def cross() -> None:
    """Let this process choose code for WebAssembly; call it before any kernel's module is imported."""
    global _crossing
    _crossing = Isa(WASM, frozenset(), GENERIC)


def current() -> Isa:
    """What kernels are compiled for: Numba's target, or before it is made the host, less the cap, less Numba's word."""
    if _crossing is not None:
        return _crossing
    if compiled_for := target.made():
        return _compiled_for(compiled_for.cpu, compiled_for.features)
    if cpu := _capped_cpu():
        return _compiled_for(cpu, "")
    name, words, avx = target.setting()
    if words is None:  # Numba hands LLVM the host's features, whatever CPU name it tunes for
        words = ",".join(f"{'+' if avx or not f.startswith('avx') else '-'}{f}" for f in detect().features)
    return _compiled_for(name, words)


def capped() -> bool:
    """Whether a cap below the host's level is in force."""
    return _capped_cpu() is not None


def level() -> str:
    """The level in force: one of `LEVELS`, or "generic" on another architecture."""
    return current().level


def apply() -> str | None:
    """Limit Numba to the level in force.  None: done; otherwise a sentence that says why it cannot be.

    With no cap below the host, Numba is left as it is.
    """
    if target.disabled():
        return "Numba compiles nothing (NUMBA_DISABLE_JIT=1); unset that variable"
    asked, host = _asked(), detect().level
    if asked is not None and host != GENERIC and (asked in X86) != (host in X86):
        here = X86[: X86.index(host) + 1] if host in X86 else (host,)
        return f"{VARIABLE}={asked} is not a level of this CPU; levels here: {', '.join(here)}"
    cpu = _capped_cpu()
    if cpu is None:
        return None
    compiled_for = target.made() or target.tell(cpu, "")
    if (compiled_for.cpu, compiled_for.features) == (cpu, ""):
        return None
    return (
        f"{VARIABLE}={asked} came too late: Numba already compiles for "
        f"{compiled_for.cpu or 'the host'} in this process; set it before the first Numba function is made"
    )


def settle() -> None:
    """Make Numba create its target for the level in force, if it has not; call this before our first dispatcher."""
    cpu = _capped_cpu()
    if cpu is not None and target.made() is None:
        target.tell(cpu, "")
    target.make()


def registers(level: str) -> str:
    """The prefix of the level's vector registers in assembly ("" if unknown).

    On Intel's AVX-512 CPUs LLVM's own loops keep to ymm (their tuning prefers 256 bits), except those of kernels that
    compute (`trueno_simd.rows.width`).
    """
    return {"sse2": "xmm", "avx": "ymm", "avx2": "ymm", "avx512": "zmm", "neon": "v"}.get(level, "")


def slow_root() -> bool:
    """Whether the square root of a vector takes longer than the ten products that can replace it.

    On Intel's cores 16 roots take as long as 24 products, on Zen 5 as long as 16: there the replacement lost a third
    of the speed, on Emerald Rapids it gained half.  By name, as a wrong one costs no digit.
    """
    return level() == "avx512" and not current().cpu.startswith("znver")


def lanes(level: str, itemsize: int) -> int:
    """Elements of `itemsize` bytes in one vector register."""
    return max(1, {"avx": 32, "avx2": 32, "avx512": 64}.get(level, 16) // itemsize)


def _valid(name: str) -> str:
    word = name.strip().lower()
    if word in LEVELS:
        return word
    near = difflib.get_close_matches(word, LEVELS, n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ";"
    raise ValueError(f'{VARIABLE}: "{name}" is not a level{hint} levels: {", ".join(LEVELS)}')


def _asked() -> str | None:
    if _cap_given:
        return _cap
    word = os.environ.get(VARIABLE, "").strip()
    return _valid(word) if word else None


def _capped_cpu() -> str | None:
    """The CPU name for the cap, or None if it limits nothing."""
    asked, host = _asked(), detect().level
    if asked not in X86 or host not in X86 or X86.index(asked) >= X86.index(host):
        return None
    return _CPU[asked]


def _compiled_for(cpu: str | None, words: str) -> Isa:
    """The level of a CPU name with LLVM's words for features; None: the host."""
    host = detect()
    if cpu in (None, host.cpu):
        # The name alone may stand for less than the host has: a Xeon in a virtual machine is "rocketlake", which knows
        # no AVX-VNNI.
        features = host.features - _MORE
    else:
        # For a CPU that is not in this table LLVM uses what it has; kernels that name instructions keep to the
        # baseline.
        features = host.features & _GRANTS.get(cpu.lower(), _SSE2 | {"neon"})
    for word in words.split(","):
        sign, feature = word.strip()[:1], word.strip()[1:]
        if sign == "-":
            features -= {feature}
        elif sign == "+":
            features |= {feature} & host.features
    return _isa(features, cpu or host.cpu)


def _isa(features: frozenset[str], cpu: str) -> Isa:
    if features >= _AVX512:
        word = "avx512"
    elif features >= _AVX2:
        word = "avx2"
    elif "avx" in features:
        word = "avx"
    elif "sse2" in features:
        word = "sse2"
    else:
        word = "neon" if "neon" in features else GENERIC
    return Isa(word, features, cpu)


@cache
def _host() -> Isa:
    import llvmlite.binding as llvm

    try:
        name, features = llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot tell on this platform: the architecture's floor
        name, features = "generic", {}
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        features["sse2"] = True
    elif machine in ("aarch64", "arm64"):
        features["neon"] = True  # part of the architecture; LLVM does not list it on every system
    return _isa(frozenset(f for f in _ASKED if features.get(f)), name)


RUNS = 8  # runs of a block, after which sums are combined: 8 additions per lane


def block(dtype: str, at: str = "") -> int:
    """Elements of a fold's block: 64 for each lane that LLVM uses for a level (docs/adr/0003, 0015), this one's."""
    return 64 * _lanes_used(at or level()) // (2 if dtype == "float64" else 1)


def chain() -> int:
    """The most additions in the call's dtype that a term of a sum passes through, in either dtype.

    A lane's share of a run, the combination of the lanes by halves, and elements that fill no vector, one by one.
    LLVM adds in four registers, or in one where a long body needs the others; in hand-written kernels on Intel's
    AVX-512 in half a one.
    """
    fewest = min(lanes(level(), 4), 8)
    return max(64 * _lanes_used(level()) // RUNS // w + w.bit_length() - 1 + w - 1 for w in (fewest, 4 * fewest))


def _lanes_used(at: str) -> int:
    return {"avx512": 64, "avx2": 32, "avx": 32}.get(at, 8)
