"""The linker: places of data, functions and types, and what it refuses."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="needs numba")
import llvmlite.binding as llvm
from trueno_simd.wasm import linker
from trueno_simd.wasm.target import FEATURES, TRIPLE

TEXT = """
@number = internal global i32 5
@zeros = internal global [100 x i32] zeroinitializer, align 64
@text = internal constant [3 x i8] c"abc"
@pointer = internal global ptr @double
@inner = internal global ptr getelementptr ([3 x i8], ptr @text, i32 0, i32 2)
define internal i32 @same(ptr %p) noinline { %x = load volatile i32, ptr %p
  ret i32 %x }
define internal i32 @double(ptr %p) noinline { %x = load volatile i32, ptr %p
  %y = mul i32 %x, 2
  ret i32 %y }
define i32 @by_address(i32 %i) {
  %first = icmp eq i32 %i, 0
  %function = select i1 %first, ptr @same, ptr @double
  %x = call i32 %function(ptr @number)
  store i32 11, ptr @number
  ret i32 %x }
define i32 @by_pointer() {
  %function = load volatile ptr, ptr @pointer
  %x = call i32 %function(ptr @number)
  ret i32 %x }
define i32 @letter() {
  %p = load volatile ptr, ptr @inner
  %c = load i8, ptr %p
  %x = zext i8 %c to i32
  ret i32 %x }
define i32 @frame(i32 %i) {
  %room = alloca [64 x i32], align 16
  %slot = getelementptr [64 x i32], ptr %room, i32 0, i32 %i
  store volatile i32 %i, ptr %slot
  %zero = getelementptr [100 x i32], ptr @zeros, i32 0, i32 %i
  %x = load volatile i32, ptr %zero
  %y = load volatile i32, ptr %slot
  %z = add i32 %x, %y
  ret i32 %z }
define i32 @where() { ret i32 ptrtoint (ptr @zeros to i32) }
"""
ENTRIES = ("by_address", "by_pointer", "letter", "frame", "where")


def object_of(text: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(features=FEATURES, opt=3)
    return machine.emit_object(llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{text}'))


@pytest.mark.parametrize("base", [1 << 17, (1 << 31) - 64, (1 << 31) + 4096])
def test_a_linked_module_runs(base: int, tmp_path: Path) -> None:
    """Beyond 2^31, too, where an address written as a signed number is negative."""
    if (node := shutil.which("node")) is None:
        pytest.skip("no node: apt-get install nodejs")
    path = tmp_path / "module.wasm"
    path.write_bytes(linker.link(object_of(TEXT), ENTRIES, base, 1 << 16))
    script = f"""
    const code = new WebAssembly.Module(require("fs").readFileSync({str(path)!r}));
    const e = new WebAssembly.Instance(code, {{}}).exports;
    console.log([e.by_address(0), e.by_address(1), e.by_pointer(), e.letter(), e.frame(63), e.where() >>> 0,
                 e.memory.buffer.byteLength].join());"""
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *values, place, size = map(int, done.stdout.split(","))
    assert values == [5, 22, 22, ord("c"), 63]
    assert place % 64 == 0 and base <= place and place + 400 <= size < place + 400 + 2 * linker.PAGE


def test_a_function_that_no_page_has() -> None:
    text = "declare float @fmodf(float, float)\ndefine float @f(float %x) {\n"
    text += "  %y = call float @fmodf(float %x, float 2.0)\n  ret float %y }"
    with pytest.raises(linker.LinkError, match="the kernels call fmodf, which pages do not have"):
        linker.link(object_of(text), ("f",), 1 << 17, 1 << 16)


def test_data_that_no_page_has() -> None:
    text = "@far = external global i32\ndefine i32 @f() {\n  %y = load i32, ptr @far\n  ret i32 %y }"
    with pytest.raises(linker.LinkError, match="far"):
        linker.link(object_of(text), ("f",), 1 << 17, 1 << 16)


def test_other_files() -> None:
    with pytest.raises(linker.LinkError, match="not a WebAssembly file"):
        linker.link(b"\x7fELF" + bytes(60), ("f",), 1 << 17, 1 << 16)
