"""Attention by the tensor cores of sm_90a: 16-bit operands, and float32 in bfloat16 parts; sums in float32.

A block has 64 rows for each of one to three warpgroups.  A thread of another one lets the tensor memory accelerator
bring tiles of keys and values into a ring of stages, swizzled as wgmma wants them, and waits at mbarriers for what is
free.  Scores stay in registers: as weights they are the left operand of the second product.  While one warpgroup
computes weights, the products of another keep the tensor cores busy.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from trueno_cuda.kernels.attention import form as forms
from trueno_cuda.kernels.attention.form import Form
from trueno_cuda.kernels.attention.fragments import TOP, Parts, products, split, weights
from trueno_cuda.kernels.attention.planes import UNIT
from trueno_cuda.kernels.attention.softmax import Softmax
from trueno_cuda.kernels.gemm.wgmma import Ring
from trueno_cuda.kernels.source import build
from trueno_cuda.kernels.store import Finish
from trueno_cuda.ptx import Kernel, f16, f32, s32, tensor_map, u32, u64
from trueno_cuda.ptx.types import PACKS

WIDE = 64
"""Columns that a swizzle of 128 bytes reaches."""
REGISTERS = {2: (24, 240), 3: (32, 160)}
"""By warpgroups that multiply: of a thread that copies, and of one that multiplies."""


@dataclass(frozen=True, slots=True)
class Tile:
    """groups: of four warps, each with 64 rows.  keys at a time; stages of them; d, e: multiples of 64.

    turns: whether warpgroups begin their products in turns.
    """

    groups: int
    keys: int
    stages: int
    d: int
    e: int
    turns: bool = True

    @property
    def rows(self) -> int:
        return 64 * self.groups

    @property
    def threads(self) -> int:
        return 128 * (self.groups + 1)

    def __str__(self) -> str:
        return f"{self.rows}x{self.keys}_s{self.stages}_d{self.d}_e{self.e}{'_t' * self.turns}"

    def shared_bytes(self, parts: Parts) -> int:
        """Of a block."""
        tiles = self.stages * self.keys * (parts.keys * self.d + parts.values * self.e)
        return 2 * (parts.keys * self.rows * self.d + tiles) + 2048


def boxes(tile: Tile) -> tuple[int, ...]:
    """What one copy brings of keys or values [parts, problems, tokens, heads, columns]."""
    return 1, 1, tile.keys, 1, WIDE


@cache
def wgmma(tile: Tile, form: Form, parts: Parts, vectors: bool, unit: int) -> Kernel:
    """vectors: q is read 8 elements at a time.  unit: elements of a result that are stored at once, 1 or 2.

    Floor: 2 (d + e) flops for each visible pair of a row and a key and each product of parts, at 989e12 a second on an
    H200, and 2^x for each pair, at 16 a clock and multiprocessor: at d = 128 that is half of the products' time.
    Measured there, causal, d = 128, medians of five rounds beside PyTorch's attention, in bfloat16 with weights in
    one part: 553 TFLOP/s at 4096 tokens of 32 heads (PyTorch 527), 577 at 16384 (558), 526 at 4096 tokens of 28 heads
    and 4 of keys (490); with weights in two parts 429, 443, 416.  In float32, 28 heads and 4 of keys: 64 at 512 tokens,
    97 at 1024, 144 at 2048, 145 at 4096.  A stage less costs a quarter; 64 keys at a time, or a third warpgroup, a
    sixth; heads one after the other 8 percent at 4096 tokens; to skip the rescaling where no maximum rose wins nothing.
    """
    d, e, keys, stages, groups = tile.d, tile.e, tile.keys, tile.stages, tile.groups
    turns = tile.turns and groups > 1
    half = form.keys
    top = TOP if half is f16 else 0
    of_scores, of_values = products(parts.keys, parts.keys), products(parts.weights, parts.values)
    consumers = 128 * groups
    k_size, v_size = parts.keys * keys * d, parts.values * keys * e

    def body(k: Any, p: Any) -> None:
        part = forms.part(k, p, form, tile.rows, e, (UNIT if vectors else 1, 1, 1))
        warp, lane = k.warp, k.lane
        q_tile = k.shared(half, parts.keys * tile.rows * d, align=1024)
        k_ring = k.shared(half, k_size, stages=stages, align=1024)
        v_ring = k.shared(half, v_size, stages=stages, align=1024)
        k_full, k_free, v_full, v_free = (k.mbarrier(stages) for _ in range(4))
        finish = Finish(k, p, form.store)
        with k.when(k.tid == 0):
            for s in range(stages):
                for full, free in ((k_full, k_free), (v_full, v_free)):
                    full.init(1, s)
                    free.init(4 * groups, s)
            k.fence("mbarrier_init")
        k.sync()

        def copy() -> None:
            """One thread's work: fill the stages that are free."""
            ring, head = Ring(k, stages), part.head.bits(s32)
            for at in k.range(part.low, part.high, keys):
                for tiles, full, free, source, problem, many, width in (
                    (k_ring, k_full, k_free, p.keys, part.k, parts.keys, d),
                    (v_ring, v_full, v_free, p.values, part.v, parts.values, e),
                ):
                    free.wait(ring.turn ^ 1, ring.stage)
                    full.arrive_expecting(2 * keys * many * width, ring.stage)
                    to = tiles[ring.stage] if stages > 1 else tiles
                    for i in range(many):
                        for c in range(0, width, WIDE):
                            corner = c, head, at.bits(s32), problem, i
                            k.copy_tensor(to, (i * width + c) * keys, source, corner, full, ring.stage)
                ring.step()

        def copy_queries() -> None:
            """Scaled and split, swizzled as a copy would leave them."""
            across = d // UNIT
            for begin in range(0, tile.rows * across, consumers):
                slot = k.tid + begin
                row, column = slot // across, slot % across
                asked = forms.row(k, p, form, part, part.first + row)
                pairs = forms.queries(k, p, form, part, asked, column * UNIT, vectors, lambda a, b: split(
                    k, half, a, b, parts.keys))  # fmt: skip
                block, chunk = column // (WIDE // UNIT), column % (WIDE // UNIT)
                to = block * (tile.rows * WIDE // 2) + row * (WIDE // 2) + (chunk ^ row % 8) * 4
                for i in range(parts.keys):
                    words = [pair[i].bits(u32) for pair in pairs]
                    (q_tile.cast(u32) + i * tile.rows * d // 2).store(k.multiple_of(to, 4), words)

        def multiply() -> None:
            """Four warps' work: attend from 64 rows."""
            copy_queries()
            k.fence("async")
            k.sync(1, consumers)
            group = warp // 4

            def rows() -> list[Any]:
                first = part.first + (warp * 16 + lane // 4)
                return [forms.row(k, p, form, part, first + 8 * h) for h in range(2)]

            own = rows() if form.extra == "mask" else []
            softmax = Softmax(k, p, form, part, rows, 2, 4, lane % 4, top)
            sums, scores = k.vars(f32, e // 2, 0.0), k.vars(f32, keys // 2, 0.0)
            lines = [[x for n in range(0, keys // 2, 4) for x in scores[n + 2 * h : n + 2 * h + 2]] for h in range(2)]
            ring = Ring(k, stages)

            def multiply_keys() -> None:
                """Begin S = Q K^T."""
                k_tile, fresh = k_ring[ring.stage] if stages > 1 else k_ring, False
                for i, j in of_scores:
                    for c in range(0, d, WIDE):
                        left = k.matrix(q_tile, group * (64 * WIDE) + (i * d + c) * tile.rows, stride=8 * WIDE)
                        right = k.matrix(k_tile, (j * d + c) * keys, stride=8 * WIDE)
                        for q in range(0, WIDE, 16):
                            a, b = k.deeper(left, q, half), k.deeper(right, q, half)
                            k.wgmma(f"m64n{keys}k16", scores, a, b, half, accumulate=fresh)
                            fresh = True
                k.wgmma_commit()

            def multiply_values(stage: Any) -> None:
                """Begin O += P V."""
                k.wgmma_fence()
                v_tile = v_ring[stage] if stages > 1 else v_ring
                for j in range(parts.values):
                    right = k.matrix(v_tile, j * e * keys, leading=keys * WIDE, stride=8 * WIDE)
                    for i in (i for i, other in of_values if other == j):
                        for n, step in enumerate(held):
                            b = k.deeper(right, n * 16 * WIDE, half)
                            k.wgmma(f"m64n{e}k16", sums, step[i, j], b, half, transposed=(False, True))
                k.wgmma_commit()

            def weigh(at: Any) -> list[Any]:
                """Scores become weights."""
                columns = [at + (8 * n + c) + lane % 4 * 2 for n in range(keys // 8) for c in range(2)]
                softmax.scale(lines, columns, own)
                with k.when(~forms.whole(k, p, part, at, keys)):
                    softmax.unseen(lines, columns)
                return softmax.weights(lines)

            def keep() -> None:
                """Weights become the left operand of the next product."""
                for n, step in enumerate(held):
                    made = weights(k, half, [scores[8 * n : 8 * n + 4], scores[8 * n + 4 : 8 * n + 8]], parts)
                    for name, registers in step.items():
                        for register, value in zip(registers, made[name], strict=True):
                            register.set(value)

            def freed(free: Any, stage: Any) -> None:
                with k.when(lane == 0):
                    free.arrive(stage)

            def turn(end: bool, more: Any = None) -> None:
                """Warpgroups begin their products in turns, so that one multiplies while another weighs."""
                for g in range(groups) if turns else ():
                    with k.when(group == g):
                        if not end:
                            k.sync(2 + g, 256)
                        elif g + 1 < groups:
                            k.arrive(3 + g, 256)
                        else:
                            with k.when(more):
                                k.arrive(2, 256)

            pack = PACKS[half.name]
            none = k.pack(pack, *[k.const(half, 0.0)] * 2)
            held = [{name: k.vars(pack, 4, none) for name in of_values} for _ in range(keys // 16)]
            with k.when(part.low < part.high):
                k_full.wait(0, 0)
                k.wgmma_fence()
                multiply_keys()
                k.wgmma_wait(0)
                freed(k_free, 0)
                weigh(part.low)
                keep()
                last, last_turn = k.var(u32, 0), k.var(u32, 0)
                ring.step()
                if turns:
                    with k.when((group == groups - 1) & (part.low + keys < part.high)):
                        k.arrive(2, 256)
                for at in k.range(part.low + keys, part.high, keys):
                    k_full.wait(ring.turn, ring.stage)
                    turn(False)
                    k.wgmma_fence()
                    multiply_keys()
                    v_full.wait(last_turn, last)
                    multiply_values(last)
                    turn(True, at + keys < part.high)
                    k.wgmma_wait(1)
                    freed(k_free, ring.stage)
                    olds = weigh(at)
                    k.wgmma_wait(0)
                    freed(v_free, last)
                    for i, x in enumerate(sums):
                        x.update("mul", olds[i // 2 % 2])
                    keep()
                    last.set(ring.stage)
                    last_turn.set(ring.turn)
                    ring.step()
                v_full.wait(last_turn, last)
                multiply_values(last)
                k.wgmma_wait(0)

            # ---- the result
            for h, (r, done) in enumerate(softmax.finish()):
                number = part.out + r.at(p).to(u64)
                base = k.multiple_of(number * p.e.to(u64), unit)
                line = p.out + base
                for c in range(0, e, 8):
                    first = lane % 4 * 2 + c
                    for x in range(0, 2, unit):
                        inside = r.live & (first + x < p.e)
                        values = [done(v) for v in sums[c // 2 + 2 * h + x :][:unit]]
                        values = [v if form.element is f32 else v.to(form.element) for v in values]
                        stored = finish(values, base + (first + x).to(u64), number, first + x, inside)
                        line.store(first + x, stored, where=inside)
            finish.end()

        with k.when(warp >= 4 * groups):
            if groups > 1:
                k.set_max_registers("dec", REGISTERS[groups][0])
            with k.when(k.tid == consumers):
                copy()
        with k.when(warp < 4 * groups):
            if groups > 1:
                k.set_max_registers("inc", REGISTERS[groups][1])
            multiply()

    words = f"{'_v' * vectors}{'_u2' if unit == 2 else ''}"
    name = f"attention_wgmma_{form.word}_{half}_p{parts}_{tile}{words}"
    return build(name, "sm_90a", form.params() | {"keys": tensor_map, "values": tensor_map}, body, tile.threads)
