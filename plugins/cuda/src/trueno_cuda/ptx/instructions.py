"""Instructions are data: `k.NAME(...)` looks NAME up here, and one function emits what it finds.

A row holds a name, operand types, the result's type and the forms.  In the operands `a` is the form's own type (its
last suffix), `b` any type of that many bits, `w` the type of twice the bits, `n` a number that must be known now.
`{rnd}` `{ftz}` `{sat}` `{nan}` `{relu}` are options: `k.add(x, y, rnd="rz", ftz=True)`.  Without options results are
IEEE: rounded to nearest, subnormals kept, and never contracted (`add.f32` may become an fma, `add.rn.f32` may not).
"""

from dataclasses import dataclass
from typing import Final

from trueno_cuda.ptx import types
from trueno_cuda.ptx.types import TYPES, Type, s32, s64, u32, u64

_ROWS = """
add        aa > a    add{rnd}{ftz}{sat}.f32 add{rnd}.f64 add.rn{ftz}{sat}.f16 add.rn{ftz}{sat}.f16x2 \
                     add.rn.bf16 add.rn.bf16x2 add.u16 add.s16 add.u32 add{sat}.s32 add.u64 add.s64
sub        aa > a    sub{rnd}{ftz}{sat}.f32 sub{rnd}.f64 sub.rn{ftz}{sat}.f16 sub.rn{ftz}{sat}.f16x2 \
                     sub.rn.bf16 sub.rn.bf16x2 sub.u16 sub.s16 sub.u32 sub{sat}.s32 sub.u64 sub.s64
mul        aa > a    mul{rnd}{ftz}{sat}.f32 mul{rnd}.f64 mul.rn{ftz}{sat}.f16 mul.rn{ftz}{sat}.f16x2 \
                     mul.rn.bf16 mul.rn.bf16x2 mul.lo.u16 mul.lo.s16 mul.lo.u32 mul.lo.s32 mul.lo.u64 mul.lo.s64
mul_hi     aa > a    mul.hi.u16 mul.hi.s16 mul.hi.u32 mul.hi.s32 mul.hi.u64 mul.hi.s64
mul_wide   aa > w    mul.wide.u16 mul.wide.s16 mul.wide.u32 mul.wide.s32
mad        aaa > a   mad.lo.u16 mad.lo.s16 mad.lo.u32 mad.lo.s32 mad.lo.u64 mad.lo.s64
mad_hi     aaa > a   mad.hi.u32 mad.hi.s32 mad.hi.u64 mad.hi.s64
mad_wide   aaw > w   mad.wide.u16 mad.wide.s16 mad.wide.u32 mad.wide.s32
fma        aaa > a   fma{rnd}{ftz}{sat}.f32 fma{rnd}.f64 fma.rn{ftz}{sat}{relu}.f16 fma.rn{ftz}{sat}{relu}.f16x2 \
                     fma.rn{relu}.bf16 fma.rn{relu}.bf16x2
div        aa > a    div{rnd}{ftz}.f32 div{rnd}.f64 div.u16 div.s16 div.u32 div.s32 div.u64 div.s64
div_full   aa > a    div.full{ftz}.f32
div_approx aa > a    div.approx{ftz}.f32
rem        aa > a    rem.u16 rem.s16 rem.u32 rem.s32 rem.u64 rem.s64
min        aa > a    min{ftz}{nan}.f32 min.f64 min{ftz}{nan}.f16 min{ftz}{nan}.f16x2 min{nan}.bf16 min{nan}.bf16x2 \
                     min.u16 min.s16 min.u32 min.s32 min.u64 min.s64
max        aa > a    max{ftz}{nan}.f32 max.f64 max{ftz}{nan}.f16 max{ftz}{nan}.f16x2 max{nan}.bf16 max{nan}.bf16x2 \
                     max.u16 max.s16 max.u32 max.s32 max.u64 max.s64
neg        a > a     neg{ftz}.f32 neg.f64 neg{ftz}.f16 neg{ftz}.f16x2 neg.bf16 neg.bf16x2 neg.s16 neg.s32 neg.s64
abs        a > a     abs{ftz}.f32 abs.f64 abs{ftz}.f16 abs{ftz}.f16x2 abs.bf16 abs.bf16x2 abs.s16 abs.s32 abs.s64
with_sign  aa > a    copysign.f32 copysign.f64
sqrt       a > a     sqrt{rnd}{ftz}.f32 sqrt{rnd}.f64
sqrt_approx a > a    sqrt.approx{ftz}.f32
rsqrt      a > a     rsqrt.approx{ftz}.f32 rsqrt.approx.f64
rcp        a > a     rcp{rnd}{ftz}.f32 rcp{rnd}.f64
rcp_approx a > a     rcp.approx{ftz}.f32
exp2       a > a     ex2.approx{ftz}.f32 ex2.approx.f16 ex2.approx.f16x2 ex2.approx.ftz.bf16 ex2.approx.ftz.bf16x2
log2       a > a     lg2.approx{ftz}.f32
sin        a > a     sin.approx{ftz}.f32
cos        a > a     cos.approx{ftz}.f32
tanh       a > a     tanh.approx.f32 tanh.approx.f16 tanh.approx.f16x2 tanh.approx.bf16 tanh.approx.bf16x2
round      a > a     cvt.rni{ftz}.f32.f32 cvt.rni.f64.f64 cvt.rni.f16.f16
floor      a > a     cvt.rmi{ftz}.f32.f32 cvt.rmi.f64.f64 cvt.rmi.f16.f16
ceil       a > a     cvt.rpi{ftz}.f32.f32 cvt.rpi.f64.f64 cvt.rpi.f16.f16
trunc      a > a     cvt.rzi{ftz}.f32.f32 cvt.rzi.f64.f64 cvt.rzi.f16.f16
saturate   a > a     cvt{ftz}.sat.f32.f32 cvt.sat.f64.f64
and_       bb > b    and.pred and.b16 and.b32 and.b64
or_        bb > b    or.pred or.b16 or.b32 or.b64
xor        bb > b    xor.pred xor.b16 xor.b32 xor.b64
not_       b > b     not.pred not.b16 not.b32 not.b64
shl        bU > b    shl.b16 shl.b32 shl.b64
shr        aU > a    shr.u16 shr.s16 shr.u32 shr.s32 shr.u64 shr.s64
shf_l      bbU > b   shf.l.wrap.b32
shf_r      bbU > b   shf.r.wrap.b32
popc       b > U     popc.b32 popc.b64
clz        b > U     clz.b32 clz.b64
bfind      a > U     bfind.u32 bfind.s32 bfind.u64 bfind.s64
brev       b > b     brev.b32 brev.b64
bfe        aUU > a   bfe.u32 bfe.s32 bfe.u64 bfe.s64
bfi        bbUU > b  bfi.b32 bfi.b64
lop3       bbbn > b  lop3.b32
prmt       bbU > b   prmt.b32
sad        aaa > a   sad.u32 sad.s32
dp4a       u8x4,u8x4,u32 > u32  dp4a.u32.u32
dp4a       s8x4,s8x4,s32 > s32  dp4a.s32.s32
dp4a       u8x4,s8x4,s32 > s32  dp4a.u32.s32
dp4a       s8x4,u8x4,s32 > s32  dp4a.s32.u32
dp2a_lo    s16x2,s8x4,s32 > s32 dp2a.lo.s32.s32
dp2a_hi    s16x2,s8x4,s32 > s32 dp2a.hi.s32.s32
dp2a_lo    u16x2,u8x4,u32 > u32 dp2a.lo.u32.u32
dp2a_hi    u16x2,u8x4,u32 > u32 dp2a.hi.u32.u32
"""

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "rnd": ("rn", "rz", "rm", "rp"),
    "ftz": ("ftz",),
    "sat": ("sat",),
    "nan": ("NaN",),
    "relu": ("relu",),
}
"""What each placeholder may become; the flags are off unless given."""

COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")

SPECIAL_REGISTERS: Final[dict[str, tuple[str, Type, str]]] = {
    # name: register, type, and its uniformity: over a block, over a warp, or not at all
    "tid": ("%tid.x", u32, "lane"), "tid_y": ("%tid.y", u32, "lane"), "tid_z": ("%tid.z", u32, "lane"),
    "ctaid": ("%ctaid.x", u32, "block"), "ctaid_y": ("%ctaid.y", u32, "block"), "ctaid_z": ("%ctaid.z", u32, "block"),
    "ntid": ("%ntid.x", u32, "block"), "ntid_y": ("%ntid.y", u32, "block"), "ntid_z": ("%ntid.z", u32, "block"),
    "nctaid": ("%nctaid.x", u32, "block"), "nctaid_y": ("%nctaid.y", u32, "block"),
    "nctaid_z": ("%nctaid.z", u32, "block"), "lane": ("%laneid", u32, "lane"), "smid": ("%smid", u32, "block"),
    "lanemask_lt": ("%lanemask_lt", u32, "lane"), "lanemask_le": ("%lanemask_le", u32, "lane"),
    "lanemask_gt": ("%lanemask_gt", u32, "lane"), "lanemask_ge": ("%lanemask_ge", u32, "lane"),
    "cluster": ("%clusterid.x", u32, "block"), "cluster_rank": ("%cluster_ctarank", u32, "block"),
    "cluster_blocks": ("%cluster_nctarank", u32, "block"), "cluster_ctaid": ("%cluster_ctaid.x", u32, "block"),
    "cluster_ctaid_y": ("%cluster_ctaid.y", u32, "block"),
}  # fmt: skip
CLOCKS: Final[dict[str, tuple[str, Type]]] = {
    "clock": ("%clock64", u64),
    "globaltimer": ("%globaltimer", u64),
}
"""Registers that change between reads: `k.clock()` is a call."""

STATEMENTS: Final[dict[str, str]] = {
    "wait_for_previous_grid": "griddepcontrol.wait",
    "launch_next_grid": "griddepcontrol.launch_dependents",
    "trap": "trap",
}
"""Instructions without operands."""

FENCES: Final[dict[str, str]] = {
    "block": "fence.acq_rel.cta",
    "gpu": "fence.acq_rel.gpu",
    "system": "fence.acq_rel.sys",
    "cluster": "fence.acq_rel.cluster",
    "async": "fence.proxy.async",
    "mbarrier_init": "fence.mbarrier_init.release.cluster",
}

_BITS = {"pred": ("pred",), "b16": ("u16", "s16"), "b32": ("u32", "s32"), "b64": ("u64", "s64")}
_DOUBLE = {"u16": u32, "s16": s32, "u32": u64, "s32": s64}
_PACKED_BITS = tuple(t.name for t in TYPES.values() if t.lane is not None and t.bits == 32)


@dataclass(frozen=True, slots=True)
class Form:
    """One instruction for one choice of types; None among the operands is a number that must be known now."""

    opcode: str
    operands: tuple[Type | None, ...]
    result: Type


def _expand(opcode: str, operands: str, result: str) -> list[Form]:
    """The forms of a spelling: one, or one per type if it names only bits."""
    if "," in operands:
        return [Form(opcode, tuple(TYPES[name] for name in operands.split(",")), TYPES[result])]
    suffix = opcode.rpartition(".")[2]
    names = _BITS.get(suffix, (suffix,))
    if suffix == "b32" and not opcode.startswith(("popc", "clz")):
        names += _PACKED_BITS  # packs of small numbers are taken apart by bit operations
    forms = []
    for name in names:
        own = TYPES[name]
        meaning = {"a": own, "b": own, "w": _DOUBLE.get(name), "U": u32, "n": None}
        kinds = tuple(meaning[letter] for letter in operands)
        forms.append(Form(opcode, kinds, meaning[result] or own))
    return forms


def _table(rows: str) -> dict[str, tuple[Form, ...]]:
    table: dict[str, list[Form]] = {}
    for row in rows.replace("\\\n", " ").strip().splitlines():
        name, operands, _, result, *opcodes = row.split()
        table.setdefault(name, []).extend(f for opcode in opcodes for f in _expand(opcode, operands, result))
    return {name: tuple(forms) for name, forms in table.items()}


INSTRUCTIONS: Final = _table(_ROWS)
CONVERTIBLE: Final = frozenset({"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"})
"""Types between which `.to()` converts."""

ATOMICS: Final[dict[str, tuple[Type, ...]]] = {
    "add": (types.u32, types.s32, types.u64, types.f32, types.f64, types.f16, types.f16x2, types.bf16, types.bf16x2),
    "min": (types.u32, types.s32, types.u64, types.s64),
    "max": (types.u32, types.s32, types.u64, types.s64),
    "and": (types.u32, types.s32, types.u64, types.s64),
    "or": (types.u32, types.s32, types.u64, types.s64),
    "xor": (types.u32, types.s32, types.u64, types.s64),
    "inc": (types.u32,),
    "dec": (types.u32,),
    "exch": (types.u32, types.s32, types.f32, types.u64, types.s64, types.f64),
    "cas": (types.u32, types.s32, types.f32, types.u16, types.u64, types.s64, types.f64),
}
