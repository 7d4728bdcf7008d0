"""Printed kernels use the vector registers of their level, and nothing above it: the assembly says so.

x86's levels run one to a process, because Numba's target is fixed once a process.  NEON and WebAssembly are
cross-compiled from the same kernels, printed for those targets: Numba's unoptimized IR, LLVM's own passes with a
target machine of that kind.  LLVM ends the process over what it cannot compile, so this too is done in another.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="needs numba")
import llvmlite.binding
from trueno_simd.llvm import isa

ON_X86 = isa.detect().level in isa.X86
LEVELS = isa.X86[: isa.X86.index(isa.detect().level) + 1] if ON_X86 else ()
KERNELS = ("relu", "add", "exp", "gelu", "sum", "max", "softmax")

PRINTED = """
import json, sys
from trueno.ops import TABLE
from trueno_simd.llvm import isa
names = sys.argv[1].split()
def rank(op):
    return 2 if op.name == "softmax" else 1
"""

NATIVE = (
    PRINTED
    + """
assert isa.apply() is None
from trueno_simd.rows.rowprogram import compiled
def assembly(op):
    kernel = compiled(op, "float32", op.layout, rank(op), (), False, False)
    return kernel.inspect_asm(kernel.signatures[0])
print(json.dumps([isa.level(), {name: assembly(TABLE[name]) for name in names}]))
"""
)

CROSS = (
    PRINTED
    + """
level, triple, features, cpu = sys.argv[2:]
isa.level = lambda: level  # what the kernels choose their instructions by
import llvmlite.binding as llvm
from numba import njit
from trueno_simd.codecache import entry
from trueno_simd.llvm import jit
from trueno_simd.rows.source import printed

def kernel_entry(signature, cache=True, wide=False):  # a Python entry would be x86's: it counts references
    return njit(signature, no_cpython_wrapper=True, no_cfunc_wrapper=True, **jit.FLAGS)
entry.kernel_entry = kernel_entry

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
try:
    target = llvm.Target.from_triple(triple)
except RuntimeError as error:
    print(json.dumps([str(error), {}]))
    sys.exit()
machine = target.create_target_machine(cpu=cpu, features=features, opt=3)

def assembly(op):
    made = {"__name__": op.name}
    exec(compile(printed(op, "float32", op.layout, rank(op)), op.name, "exec"), made)
    kernel = made["kernel"]
    lines = kernel.inspect_llvm(kernel.signatures[0]).split("\\n")
    text = "\\n".join(line for line in lines if not line.startswith(("target triple", "target datalayout")))
    module = llvm.parse_assembly(f'target triple = "{triple}"\\ntarget datalayout = "{machine.target_data}"\\n' + text)
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_assembly(module)
print(json.dumps(["", {name: assembly(TABLE[name]) for name in names}]))
"""
)


def python(code: str, folder: Path, *arguments: str, **variables: str) -> tuple[str, dict[str, str]]:
    words = ("TRUENO_MAX_ISA", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_OPT")
    environment = {k: v for k, v in os.environ.items() if k not in words} | variables
    environment["TRUENO_CACHE_DIR"] = str(folder)  # cached code cannot be inspected
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", code, " ".join(KERNELS), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    word, assemblies = json.loads(done.stdout)
    return word, assemblies


PACKED = r"\tv?(?:add|sub|mul|div|max|min|cmp\w*?|and|blendv?|fn?m(?:add|sub)\d+)p[sd]\t[^\n]*%{}\d"


@pytest.mark.parametrize("level", LEVELS)
def test_x86(level: str, tmp_path: Path) -> None:
    got, assemblies = python(NATIVE, tmp_path, TRUENO_MAX_ISA=level)
    assert got == level
    own = isa.registers(level)
    if level == "avx512" and "zmm" not in assemblies["relu"]:
        own = "[yz]mm"  # LLVM's tuning for this CPU prefers 256 bits, and kernels that compute take 512
    forbidden = {
        "sse2": r"%[yz]mm|\tv(?!oid)\w+p[sd]\t",
        "avx": r"%zmm|\tvfn?m|\tv\w+\t[^\n]*%k[0-7]",
        "avx2": r"%zmm|\tv\w+\t[^\n]*%k[0-7]",
        "avx512": r"%mm\d",
    }[level]
    for name, text in assemblies.items():
        # AVX has no integer instruction on ymm, and an exponential shifts exponents: LLVM may keep it to xmm.
        word = "[xy]mm" if level == "avx" and name in ("exp", "gelu", "softmax") else own
        assert len(re.findall(PACKED.format(word), text)) >= 2, f"{name}: no packed instruction on {word}"
        match = re.search(forbidden, text)
        assert match is None, f"{name}: {match[0].strip()!r} is above {level}"


INTEL = ("rocketlake", "graniterapids")
COMPUTES, MOVES = ("exp", "gelu", "sum", "max", "softmax"), ("relu", "add")


@pytest.mark.skipif(isa.detect().level != "avx512", reason="needs AVX-512")
@pytest.mark.parametrize("cpu", INTEL)
def test_what_computes_has_512_bits_on_intel(cpu: str, tmp_path: Path) -> None:
    """Compiled for a CPU for which LLVM prefers 256 bits: what only moves memory keeps to them."""
    features = llvmlite.binding.get_host_cpu_features().flatten()
    level, assemblies = python(NATIVE, tmp_path, NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=features)
    assert level == "avx512"
    for name in COMPUTES:
        assert len(re.findall(PACKED.format("zmm"), assemblies[name])) >= 2, name
    for name in MOVES:
        assert "zmm" not in assemblies[name], name
        assert len(re.findall(PACKED.format("ymm"), assemblies[name])) >= 2, name


@pytest.mark.skipif(isa.detect().level != "avx512", reason="needs AVX-512")
def test_functions_are_inlined(tmp_path: Path) -> None:
    """A loop calls no vector function of ours; its last numbers call the scalar one."""
    _, assemblies = python(NATIVE, tmp_path)
    for name in ("exp", "gelu", "softmax"):
        called = set(re.findall(r"trueno_simd_\w+", assemblies[name]))
        assert called == {"trueno_simd_float32_exp"}, name


def cross(folder: Path, level: str, triple: str, features: str, cpu: str = "") -> dict[str, str]:
    problem, assemblies = python(CROSS, folder, level, triple, features, cpu, NUMBA_OPT="0")
    if problem:
        pytest.skip(f"this LLVM has no target {triple}: {problem}")
    return assemblies


def test_neon(tmp_path: Path) -> None:
    for name, text in cross(tmp_path, "neon", "aarch64-unknown-linux-gnu", "+neon", "generic").items():
        packed: list[Any] = re.findall(r"\tf\w+\s+v\d+\.4s", text)
        assert len(packed) >= 2, f"{name}: no NEON instruction on four floats"


def test_webassembly(tmp_path: Path) -> None:
    for name, text in cross(tmp_path, "generic", "wasm32-unknown-unknown", "+simd128").items():
        assert re.search(r"\tf32x4\.\w+", text), f"{name}: no SIMD instruction on four floats"
        assert "v128.load" in text
