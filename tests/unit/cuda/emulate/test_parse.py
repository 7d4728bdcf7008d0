"""Bad text and bad arguments: an error that names the line, the text and the remedy."""

# ruff: noqa: E501 - kernels are easier to read with several instructions in a line

import re

import numpy as np
import pytest
from trueno.errors import TruenoError
from trueno_cuda.ptx.emulate import LaunchError, PtxError, UnknownInstruction, load

from .conftest import kernel_text
from .test_findings import SUM

GOOD = kernel_text("ld.param.u64 %rd1, [px];\n    ld.param.f32 %f1, [a];\n    st.global.f32 [%rd1], %f1;\n    ret;",
                   ".param .u64 px, .param .f32 a")  # fmt: skip


@pytest.mark.parametrize("piece, replacement, message", [
    ("%f1, [a]", "%x1, [a]", "line 14: ld.param.f32 %x1, [a];: '%x1' is not declared"),
    ("%f1, [a]", "%f1, [b]", "'b' is not declared"),
    ("%f1, [a]", "%f99, [a]", "'%f99' is not declared"),
    ("ret;", "bra NOWHERE;", "'NOWHERE' is not declared"),
    ("ret;", "ret", "expected ';' before this"),
    (".reg .f32", ".reg .f31", "unknown type '.f31'"),
    (".version 8.0", "# nothing", "unexpected character '#'"),
    ("st.global.f32", "@%rd1 st.global.f32", "a guard must be a declared .pred register"),
])  # fmt: skip
def test_unreadable_text(piece, replacement, message):
    assert piece in GOOD
    with pytest.raises(PtxError) as error:
        load(GOOD.replace(piece, replacement))
    assert message in str(error.value)


@pytest.mark.parametrize("code, message", [
    ("frobnicate.f32 %f1, %f1;", "does not know this instruction"),
    ("add.f32 %f1, %rd1, %f1;", "64"),
    ("mul.s32 %r1, %r1, %r1;", ".lo, .hi or .wide"),
    ("cvt.f32.u32 %f1, %r1;", "cvt wants .rn, .rz, .rm or .rp"),
    ("ld.global.v2.f32 %f1, [%rd1];", "2 registers are wanted, 1 given"),
    ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "copies 16 bytes"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r1}, {%f1};", "mma has no .m8n8k4 here; it wants .m16n8k8 or .m16n8k16"),
    ("ld.param.u64 %rd2, [a];", "4 bytes"),
    ("call.uni missing;", "missing"),
])  # fmt: skip
def test_unknown_instructions(code, message):
    text = GOOD.replace("ret;", f"{code}\n    ret;")
    with pytest.raises(UnknownInstruction) as error:
        load(text).kernel("k")
    line = next(n for n, row in enumerate(text.splitlines(), 1) if code in row)
    assert f"line {line}: {code.rstrip(';')}" in str(error.value)
    assert message in str(error.value)


def test_registers_of_the_wrong_width_and_duplicates():
    with pytest.raises(PtxError, match="declared twice"):
        load(kernel_text(".reg .b32 %a; .reg .b32 %a; ret;", ""))
    with pytest.raises(UnknownInstruction, match="32 bits"):
        load(kernel_text("cvt.rn.f64.f32 %f1, %f2; ret;", "")).kernel("k")


X = np.zeros(4, np.float32)


@pytest.mark.parametrize("args, message", [
    ([X], r"k takes 2 arguments \(px, a\), 1 were given"),
    ([X, X], "px|a is .f32, a number; an array was given"),
    ([1.5, 1.0], "parameter px is .u64; the float 1.5"),
    ([X, np.float64(1)], "parameter a is .f32; .* is float64"),
    ([X, "1"], "str was given"),
    ([X, None], "NoneType was given"),
    ([X[::2], 1.0], "C-contiguous"),
    ([np.array([None]), 1.0], "C-contiguous"),
])  # fmt: skip
def test_bad_arguments(args, message):
    with pytest.raises(LaunchError, match=message):
        load(GOOD).launch("k", 1, 1, args)


def test_bad_launches():
    module = load(GOOD)
    with pytest.raises(LaunchError, match="no entry 'j'; the module has k"):
        module.launch("j", 1, 1, [X, 1.0])
    with pytest.raises(LaunchError, match="1024 threads"):
        module.launch("k", 1, 1025, [X, 1.0])
    with pytest.raises(LaunchError, match="grid must be"):
        module.launch("k", 0, 1, [X, 1.0])
    with pytest.raises(LaunchError, match="shared memory"):
        module.launch("k", 1, 1, [X, 1.0], shared=300_000)
    with pytest.raises(LaunchError, match="is not a multiple of cluster"):
        module.launch("k", 3, 1, [X, 1.0], cluster=2)
    required = load(GOOD.replace(".param .f32 a) ", ".param .f32 a) .reqntid 64, 1, 1"))
    with pytest.raises(LaunchError, match=r"reqntid says \(64, 1, 1\)"):
        required.launch("k", 1, 32, [X, 1.0])
    with pytest.raises(LaunchError, match="text"):
        load(b"x")  # type: ignore[arg-type]


def test_entries_say_what_they_need():
    text = kernel_text(".shared .align 8 .b8 s[96]; ret;", ".param .u64 px, .param .align 64 .b8 m[128]",
                       directives=".maxntid 256, 1, 1 .reqnctapercluster 2, 1, 1")  # fmt: skip
    module = load(text)
    entry = module.entries["k"]
    assert entry.params == [("px", "u64", 8, 8), ("m", "b8", 128, 64)]
    assert (entry.shared, entry.maxntid, entry.cluster) == (96, (256, 1, 1), (2, 1, 1))
    assert module.version == (8, 0) and module.target == ("sm_90a",)


def test_comments_scopes_and_debug_directives():
    text = kernel_text("""
        .loc 1 5 3
        .loc 1 5 3, function_name $L__info, inlined_at 1 2 3
        .pragma "nounroll"; // a comment
        { .reg .b32 %inner; mov.u32 %inner, 0x10; { .reg .b32 %inner; mov.u32 %inner, 5; bra L; L: }
          bra L; L: add.u32 %r1, %inner, 0b11; } /* another
        comment */
        ld.param.u64 %rd1, [px]; st.global.u32 [%rd1], %r1; ret;""", ".param .u64 px")  # fmt: skip
    out = np.zeros(1, np.uint32)
    load('.file 1 "a.cu"\n'.join(["", text])).launch("k", 1, 1, [out])
    assert out[0] == 19


def test_an_array_given_twice_is_one_memory():
    text = kernel_text("ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; st.global.u32 [%rd1], 3; ld.global.u32 %r1, [%rd2];"
                       "add.u32 %r1, %r1, 1; st.global.u32 [%rd2+4], %r1; ret;", ".param .u64 px, .param .u64 py")  # fmt: skip
    x = np.zeros(2, np.uint32)
    assert not load(text).launch("k", 1, 1, [x, x]).findings
    np.testing.assert_array_equal(x, [3, 4])


def test_overlapping_arguments():
    text = kernel_text("ld.param.u64 %rd1, [px]; ld.param.u64 %rd2, [py]; st.global.u32 [%rd1], 3; ld.global.u32 %r1, [%rd2+8];"
                       "st.global.u32 [%rd2], %r1; ret;", ".param .u64 px, .param .u64 py")  # fmt: skip
    x = np.zeros(6, np.uint32)
    assert not load(text).launch("k", 1, 1, [x[2:], x]).findings
    np.testing.assert_array_equal(x, [3, 0, 3, 0, 0, 0])
    with pytest.raises(LaunchError, match="overlaps another argument in part"):
        load(text).launch("k", 1, 1, [x[2:], x[:4]])


def test_damaged_text_raises_nothing_else(rng):
    """A token lost, doubled or moved: our own error, a finding, or a kernel that still runs."""
    tokens = re.findall(r"\s+|[\w.%$:]+|.", kernel_text(SUM, ".param .u64 px, .param .u64 py"), re.DOTALL)
    ran = 0
    for _ in range(150):
        text = list(tokens)
        at, other = rng.integers(0, len(text), 2)
        text[at] = ["", text[at] * 2, text[other]][rng.integers(0, 3)]
        try:
            load("".join(text)).launch(
                "k", 2, 256, [np.zeros(512, np.float32), np.zeros(2, np.float32)], max_steps=5000
            )
            ran += 1
        except TruenoError:
            pass
    assert ran
