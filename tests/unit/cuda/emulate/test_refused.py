"""Text that no GPU would take: the line and what is wrong with it, as ptxas refuses it too, and nothing else."""

# ruff: noqa: E501 - a row a case

import numpy as np
import pytest
from trueno_cuda.ptx.emulate import LaunchError, PtxError, load
from trueno_cuda.ptx.syntax.errors import InternalError
from unit.cuda.ptx.assembler import run as assemble

TEXT = """.version 9.0
.target sm_90a
.address_size 64
{module}
.visible .entry k({params}) {directives}
{{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .f64 %d<4>;
    .shared .align 8 .b8 s[64];
    {body}
    ret;
}}
"""


def text(body: str = "", module: str = "", params: str = ".param .u64 x", directives: str = "") -> str:
    return TEXT.format(body=body, module=module, params=params, directives=directives)


BODIES = [
    # a modifier that is missing, unknown, given twice, or of another form
    ("vote.sync.pred %p1, %p2, -1;", "vote wants .any, .all or .uni"),
    ("shfl.sync.b32 %r1, %r2, 1, 31, -1;", "shfl wants .up, .down, .bfly or .idx"),
    ("redux.sync.u32 %r1, %r2, -1;", "redux wants .add, .min or .max"),
    ("match.sync.b32 %r1, %r2, -1;", "match wants .any or .all"),
    ("setp.f32 %p1, %f1, %f2;", "setp wants .eq, .ne,"),
    ("set.u32.f32 %r1, %f1, %f2;", "set wants .eq, .ne,"),
    ("cvta.u64 %rd1, %rd2;", "cvta wants .global"),
    ("cvt.pack.sat.s32 %r1, %r2, %r3;", "cvt has no .pack here"),
    ("wgmma.mma_async.sync.aligned.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1, 0, 0;", "wgmma wants .m64n8k16"),
    ("ldmatrix.sync.aligned.m8n8.shared.b16 {%r1}, [%r2];", "ldmatrix wants .x1, .x2 or .x4"),
    ("mma.sync.aligned.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3}, {%f1,%f2,%f3,%f4};", "mma wants .m16n8k8 or .m16n8k16"),
    ("atom.global.u32 %r1, [%rd1], %r2;", "atom wants"),
    ("red.global.f32 [%rd1], %f1;", "red wants .add"),
    ("bar.red.pred %p1, 0, %p2;", "bar wants .and or .or"),
    ("mbarrier.b64 [%rd1], 1;", "mbarrier wants .init"),
    ("ld.global.v999.f32 {%f1}, [%rd1];", "ld has no .v999 here; it may have"),
    ("add.rn.rz.f32 %f1, %f2, %f3;", "add has no .rz here"),
    ("add.ftz.ftz.f32 %f1, %f2, %f3;", "add has no .ftz twice"),
    ("add.sat.u32 %r1, %r2, %r3;", "add has no .sat here"),
    ("mul.wide.u64 %rd1, %rd2, %rd3;", "mul has no"),
    ("cvt.rzi.f32.u32 %f1, %r1;", "cvt has no .rzi here"),
    ("atom.global.cas.b32 %r1, [%rd1], %r2;", "atom.global.cas.b32 has 4 operands, 3 given"),
    # operands
    ("brx.idx %r1, 5;", "wants the label of a .branchtargets"),
    ("mbarrier.arrive.shared.b64 %rd1;", "an address in brackets is wanted"),
    ("cp.async.wait_group %r1;", "a whole number is wanted"),
    ("wgmma.wait_group.sync.aligned %r1;", "a whole number is wanted"),
    ("lop3.b32 %r1, %r2, %r3, %r4, 0f7F800000;", "a whole number is wanted"),
    ("lop3.and.b32 %r1, %r2, %r3, %r4, 5, %p1;", "a result d|p is wanted"),
    ("red.global.add.v2.f32 [%rd1], %f1;", "2 registers are wanted, 1 given"),
    ("mov.b32 %r1, {};", "0 parts of .b32"),
    ("mov.b32 %r1, {%h1, %h2, %h3};", "3 parts of .b32"),
    ("add.u64 %rd1, {%r1, %r2}, 5;", "cannot read"),
    ("add.u32 %r1, %r2, 0f3F800000;", "where .u32 is wanted"),
    ("add.f32 %f1, %f2, 1;", "where .f32 is wanted"),
    ("add.u32 %r1, !%p1, %r2;", "! stands before a predicate alone"),
    ("mov.u32 %r1, %laneid.x;", "is not declared"),
    ("mov.u32 %r1,;", "expected a name, found ';'"),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], [%r2];", "[map, {coordinates}]"),
    # numbers
    ("mov.u32 %r1, 0448;", "0448 begins with 0, which makes it octal"),
    ("mov.u64 %rd1, 9999999999999999999999;", "has more than 64 bits"),
    (f"mov.u64 %rd1, 0b1{'0' * 64};", "has more than 64 bits"),
    (f"mov.u64 %rd1, {'9' * 6000};", "has more than 64 bits"),
    (f"mov.u32 %r{'9' * 6000}, 1;", "is not declared"),
    # declarations
    (".shared .b8 t[-1];", "-1 is too few"),
    (".shared .b8 t[0];", "0 is too few"),
    (".shared .u32 t; .shared .u32 t;", "declared twice"),
    (".shared .align 3 .b8 t[4];", "not a power of two"),
    (".shared .pred t;", "only registers are predicates"),
    (".shared .u32 t = 5;", "no initial values"),
    (".shared .u32 t[60000];", ".shared memory of 240000 bytes is declared; 232448 is the most"),
    (".reg .bf16 %q;", "is an instruction's type alone"),
    (".reg .b32 %r<5>;", "declared twice"),
    ("L: L: bra L;", "label 'L' is defined twice"),
    ("/*", "a comment is not closed"),
]  # fmt: skip
MODULES = [
    (".global .u32 g[4] = {1, 2, 3, 4, 5};", "g has 4 elements, and more initial values"),
    (".global .u32 g[2] = {1.5, 2};", "the literal 1.5 where .u32 is wanted"),
    (".global .u32 g[2] = {1 2};", "expected ','"),
    (".shared .u32 g; .global .u64 h = g;", "no address before the kernel runs"),
    (".const .u32 g[20000];", ".const memory of 80000 bytes is declared; 65536 is the most"),
    (".local .u32 g;", "where a variable's space should stand"),
    (".param .u32 g;", "where a variable's space should stand"),
    (".visible .foo g;", "where a variable's space should stand"),
    (".global .u32 g; .global .u32 g;", "declared twice"),
    (".func f() {ret;} .func f() {ret;}", "function 'f' is defined twice"),
]  # fmt: skip
PARAMS = [
    (".param .align 0 .b8 x[4]", "0 is too few"),
    (".param .u32 x, .param .u32 x", "declared twice"),
    (".param .u32 x .param .u32 y", "expected ','"),
    (".param .b8 x[]", "has no size"),
    (".param .b8 x[32765]", ".param memory of 32765 bytes is declared; 32764 is the most"),
    (".shared .u32 x", "expected '.param'"),
]  # fmt: skip
REFUSED = [
    *((text(body), message) for body, message in BODIES),
    *((text(module=module), message) for module, message in MODULES),
    *((text(params=params), message) for params, message in PARAMS),
    (text() + '.pragma "nounroll"', "has no ';' behind it"),
    (text() + ".section .debug", "has no '{' behind it"),
    (text("{"), "a brace is not closed"),
]
OURS = [  # ptxas takes these, or takes long; a machine that runs them would not
    (text(module=".global .u32 g[1000000000000];"), ".global memory of 4000000000000 bytes is declared"),
    (text(".local .u32 t[131073];"), ".local memory of 524292 bytes is declared"),
    (text("testp.f32 %p1, %f1;"), "testp wants .finite"),
    (text("mov.u64 %rd1, 0x10000000000000000;"), "has more than 64 bits"),
    (text("{" * 100_000 + "}" * 100_000), "within each other more than 64 deep"),
    (text("mov.u32 %r1, " + "(" * 100_000 + "5" + ")" * 100_000 + ";"), "within each other more than 128 deep"),
    (text(module=".global .u32 g[1] = " + "{" * 1000 + "5" + "}" * 1000 + ";"), "within each other more than 128 deep"),
    (text("".join(f"L{k}: add.u32 %r1, %r1, 1;" for k in range(300)) + "".join(f"@%p1 bra L{k};" for k in reversed(range(300)))), "loops within each other more than 200 deep"),
    (text("call f29;", "".join(f".func f{k}() {{ call f{k - 1}; call f{k - 1}; ret; }}" if k else ".func f0() { ret; }" for k in range(30))), "instructions with all calls in place"),
    (text("call f99;", "".join(f".func f{k}() {{ call f{k - 1}; ret; }}" if k else ".func f0() { ret; }" for k in range(100))), "calls within each other more than 64 deep"),
    (text("/*" * 50_000), "a comment is not closed"),
]  # fmt: skip


@pytest.mark.parametrize("source, message", [*REFUSED, *OURS])
def test_it_is_refused_with_its_line(source, message):
    with pytest.raises(PtxError) as error:
        load(source).kernel("k")
    assert not isinstance(error.value, InternalError)
    assert message in str(error.value)
    assert error.value.line


@pytest.mark.parametrize("source", [source for source, _ in REFUSED])
def test_ptxas_refuses_it_too(source):
    accepted, log = assemble(source, "sm_90a")
    assert not accepted, log


ACCEPTED = [
    "mov.u32 %r1, 044;", "mov.u32 %r1, 012U;", "mov.u64 %rd1, 18446744073709551615;", "mov.u64 %rd1, -9223372036854775808;",
    "mov.u32 %r1, %tid.w;", "mov.u32 %r1, (((5)));", "add.f32.rn %f1, %f1, %f2;", "shfl.idx.sync.b32 %r1, %r1, 1, 31, -1;",
    "setp.f32.lt %p1, %f1, %f2;", "ld.global.relaxed.gpu.f32 %f1, [%rd1];", "mov.b32 %r1, 0f3F800000;", "mov.f32 %f1, 5.0;",
    "ld.global.f32 %f1, [%rd1+18446744073709551612];", "setp.lt.and.f16x2 %p1|%p2, %r1, %r2, %p3;", "setp.lt.f16x2 %p1, %r1, %r2;",
    "min.relu.s16x2 %r1, %r2, %r3;", "elect.sync _|%p1, -1;", "bar.cta.sync 0;", "lop3.or.b32 _|%p1, %r1, %r2, %r3, 5, %p2;",
]  # fmt: skip


@pytest.mark.parametrize("body", ACCEPTED)
def test_what_looks_odd_and_is_not(body):
    load(text(body)).kernel("k")


@pytest.mark.parametrize("body", ACCEPTED)
def test_ptxas_takes_it_too(body):
    accepted, log = assemble(text(body), "sm_90a")
    assert accepted, log


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63, 2**64 - 4, -(2**63)])
def test_offsets_count_modulo_the_address_space(offset):
    """Of a register and of a variable; where they lead nowhere it is a finding."""
    out = np.arange(4, dtype=np.uint32)
    code = f"ld.param.u64 %rd1, [x]; ld.global.u32 %r1, [%rd1+{offset}]; st.global.u32 [%rd1], %r1;"
    assert load(text(code)).launch("k", 1, 1, [out]).findings
    code = f"mov.u64 %rd1, s+{offset}; ld.shared.u32 %r1, [s+{offset}]; ld.shared.u32 %r1, [s+{offset}+{-offset}];"
    assert load(text(code)).launch("k", 1, 1, [out]).findings


def test_many_arrivals_at_once_end():
    """Each of 2³² − 1 arrivals completes a phase of one."""
    code = "mov.u32 %r1, s; mbarrier.init.shared.b64 [%r1], 1; mbarrier.arrive.shared.b64 %rd1, [%r1], 4294967295; mbarrier.arrive.shared.b64 %rd1, [%r1]; ld.param.u64 %rd2, [x]; st.global.u64 [%rd2], %rd1;"
    out = np.zeros(1, np.uint64)
    assert load(text(code)).launch("k", 1, 1, [out]).completed
    assert out[0] == 2**32 - 1


def test_a_barrier_at_no_address_is_found_and_no_other_is_touched():
    code = "mbarrier.init.b64 [x], 1; mbarrier.init.shared.b64 [%r1], 1;"
    for start in ("0", "-16776000"):
        report = load(
            text(f"mov.u32 %r1, {start}; cvt.s64.s32 %rd1, %r1; mbarrier.init.shared.b64 [%rd1], 1; {code}")
        ).launch("k", 1, 1, [np.zeros(1)])
        assert {f.kind for f in report.findings} <= {"address-space", "out-of-bounds"} and len(report.findings) >= 2


def test_modifiers_stand_in_any_order():
    out = np.zeros(1, np.uint32)
    code = "mov.f32 %f1, 1.0; testp.f32.finite %p1, %f1; selp.u32 %r1, 7, 8, %p1; ld.param.u64 %rd2, [x]; st.u32.global [%rd2], %r1;"
    load(text(code)).launch("k", 1, 1, [out])
    assert out[0] == 7


@pytest.mark.parametrize("op, want", [("min", [-1, 2, -2]), ("max", [-2, 2, -3])])
def test_the_larger_size_with_both_signs_of_one_value_and_many(op, want):
    """xorsign.abs of a literal and of a register that differs among lanes."""
    out = np.array([1, -2, 3], np.float32)
    code = f"ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 4, %rd1; ld.global.f32 %f1, [%rd1]; {op}.xorsign.abs.f32 %f1, %f1, -2.0; st.global.f32 [%rd1], %f1;"
    load(text(code)).launch("k", 1, 3, [out])
    np.testing.assert_array_equal(out, want)


def test_no_less_than_zero_in_either_half():
    out = np.zeros(1, np.uint32)
    code = "mov.b32 %r1, 0xFFFF0005; mov.b32 %r2, 0x00030007; min.relu.s16x2 %r3, %r1, %r2; ld.param.u64 %rd2, [x]; st.global.u32 [%rd2], %r3;"
    load(text(code)).launch("k", 1, 1, [out])
    assert out[0] == 5


def test_a_predicate_joins_both_halves():
    code = "mov.b32 %r1, 0x3C004000; mov.b32 %r2, 0x40003C00; setp.ne.and.b32 %p3, %r1, %r1, %p1; setp.lt.or.f16x2 %p1|%p2, %r1, %r2, !%p3; selp.u32 %r3, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2; add.u32 %r3, %r3, %r4; ld.param.u64 %rd2, [x]; st.global.u32 [%rd2], %r3;"
    out = np.zeros(1, np.uint32)
    load(text("setp.eq.u32 %p1, 0, 1;" + code)).launch("k", 1, 1, [out])
    assert out[0] == 3


def test_numbers_of_directives():
    for directive in (
        ".maxntid",
        ".maxntid 0",
        ".maxntid 1, 2, 3, 4",
        ".maxnreg 1, 2",
        ".reqntid 99999999999999999999999",
    ):
        with pytest.raises(PtxError):
            load(text(directives=directive))
    with pytest.raises(LaunchError, match="reqntid"):
        load(text(directives=".reqntid 7")).launch("k", 1, 8, [np.zeros(1)])
