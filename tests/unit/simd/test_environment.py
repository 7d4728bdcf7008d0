"""The default floating-point environment around compiled kernels, in the caller's thread and in the workers'."""

import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from llvmlite import ir
from numba import types
from seeds import fresh_seed
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm import environment

from tests.float_modes import in_mode, needs_modes, rounding

SEED = fresh_seed(__name__)


@needs_modes
@pytest.mark.parametrize("mode", ["up", "down", "zero"])
def test_nothing_moves_past_the_instruction_that_sets_the_mode(mode: str) -> None:
    """Not even one multiplication, which LLVM would like to have after both branches."""
    kernel = kernel_entry(types.float64(types.float64), cache=False)(lambda x: x * 0.1)
    expected = [kernel(x) for x in (0.3, -0.3, 1e-310, 0.7)]
    with in_mode(mode):
        before = rounding()
        found = [kernel(x) for x in (0.3, -0.3, 1e-310, 0.7)]
        after = rounding()
    assert found == expected
    assert before == after != rounding()


@needs_modes
def test_subnormals_are_kept_for_a_caller_who_flushes_them() -> None:
    kernel = kernel_entry(types.float64(types.float64), cache=False)(lambda x: x * 0.5)
    with in_mode("flush"):
        found = kernel(2.0**-1022)
    assert found.hex() == "0x0.8000000000000p-1022"


def _wrapper() -> tuple[ir.Module, set[str]]:
    """A kernel and what calls it, as Numba makes them."""
    kind = ir.FunctionType(ir.IntType(32), [ir.IntType(64).as_pointer(), ir.IntType(64).as_pointer()])
    lowered = ir.Module("kernel")
    kernel = ir.Function(lowered, kind, "kernel")
    kernel.args[0].name, kernel.args[1].name = "retptr", "excinfo"
    ir.IRBuilder(kernel.append_basic_block("entry")).ret(ir.IntType(32)(0))
    wrapper = ir.Module("wrapper")
    callee = ir.Function(wrapper, kind, "kernel")
    caller = ir.Function(wrapper, kind, "caller")
    builder = ir.IRBuilder(caller.append_basic_block("entry"))
    builder.ret(builder.call(callee, caller.args))
    return wrapper, environment.kernels(lowered)


@pytest.mark.parametrize(
    ("machine", "triple", "reads", "writes"),
    [
        ("x86_64", "x86_64-unknown-linux-gnu", "stmxcsr", "ldmxcsr"),
        ("aarch64", "aarch64-unknown-linux-gnu", ", FPCR", "FPCR, "),
    ],
)
def test_each_architecture_reads_its_register_once_and_writes_it_where_modes_differ(
    machine: str, triple: str, reads: str, writes: str
) -> None:
    wrapper, kernels = _wrapper()
    assert kernels == {"kernel"}
    assert environment.guard(wrapper, kernels, machine) == 1
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM writes no code for {machine}: {error}")
    text = target.create_target_machine(opt=2).emit_assembly(llvm.parse_assembly(str(wrapper)))
    assert text.count(reads) == 1, text
    assert text.count(writes) == 2, text


def test_on_an_architecture_without_a_word_for_it_the_core_sees_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, kernels = _wrapper()
    assert environment.guard(wrapper, kernels, "riscv64") == 0
    assert not environment.known("riscv64")
    assert environment.known("AMD64")
    assert environment.known("arm64")


def test_every_kernel_that_python_calls_is_guarded() -> None:
    """Numba names the parts of its calling convention; a version that named them otherwise would leave kernels bare."""
    kernel = kernel_entry(types.float64(types.float64), cache=False)(lambda x: x + 1.0)
    text = next(iter(kernel.inspect_asm().values()))
    if environment.known():
        assert text.count("mxcsr" if "mxcsr" in text else "FPCR") == 3, text


POOL = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.float_modes import set_mode
import numpy as np, trueno
start, during, n = sys.argv[2], sys.argv[3], int(sys.argv[4])
rng = np.random.default_rng(int(sys.argv[5]))
x = rng.standard_normal(n).astype(np.float32)
tiny = rng.integers(1, 2**23, n, dtype=np.uint32).view(np.float32)
trueno.settings.override("TRUENO_THREADS", 2)
with trueno.use("simd"):
    set_mode(start)
    trueno.softmax(x)
    set_mode(during)
    plain = {trueno.softmax(x).tobytes() + trueno.scale(tiny, 0.5).tobytes() for _ in range(12)}
    with trueno.JidokaGuard.parse([("nan", "stop"), ("inf", "stop")]):
        guarded = {trueno.softmax(x).tobytes() + trueno.scale(tiny, 0.5).tobytes() for _ in range(12)}
set_mode("nearest")
import hashlib
print(len(plain), plain == guarded, hashlib.sha256(min(plain)).hexdigest())
"""


@needs_modes
def test_no_bit_depends_on_which_worker_took_which_piece() -> None:
    """150 001 elements, where plain and guarded results once differed in most elements' last bit.

    Then the thread that started the pool had lent the workers its modes, so each sum of pieces was rounded by chance.
    """
    root = str(Path(__file__).resolve().parents[3])

    def run(start: str, during: str) -> str:
        command = [sys.executable, "-c", POOL, root, start, during, "150001", str(SEED)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout

    clean = run("nearest", "nearest")
    assert clean.startswith("1 True "), clean
    for start, during in (("up", "nearest"), ("flush", "nearest"), ("nearest", "flush"), ("zero", "up")):
        assert run(start, during) == clean, (start, during, f"seed {SEED}")
