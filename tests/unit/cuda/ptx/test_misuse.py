"""Every misuse that the builder can see has a clear error of its own, while the kernel is built."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from trueno_cuda.ptx import (
    BuildError,
    bf16,
    bf16x2,
    f32,
    f64,
    kernel,
    ptr,
    s32,
    s64,
    tf32,
    u8,
    u32,
    u64,
)

CASES: dict[str, tuple[Callable[..., None], str, str, int]] = {}


def misuse(message: str, arch: str = "sm_90", threads: int = 128):
    """Register a kernel's body (k, x: ptr(f32), h: ptr(bf16), n: u32, eps: f32) with the error it must give."""

    def register(body: Callable[..., None]) -> Callable[..., None]:
        assert body.__name__ not in CASES, body.__name__
        CASES[body.__name__] = (body, message, arch, threads)
        return body

    return register


# ---- values ---------------------------------------------------------------------------------------------


@misuse(r"%f\d+ is a Value and is written once; start an accumulator with k.var\(f32, 0\)")
def adding_to_a_value(k, x, h, n, eps):
    total = x.load(0)
    total += 1.0


@misuse(r"has no truth while the kernel is built; branch with `with k.when\(c\):`")
def python_if(k, x, h, n, eps):
    if k.tid < n:
        x.store(0, 1.0)


@misuse(r"has no truth while the kernel is built.*a < b < c")
def chained_comparison(k, x, h, n, eps):
    with k.when(0 < k.tid < n):
        x.store(0, 1.0)


@misuse("has no truth while the kernel is built.*k.min or k.max")
def python_max(k, x, h, n, eps):
    max(x.load(0), x.load(1))


@misuse(r"n \(u32\) is not a Python int: it exists on the GPU only; loop with `for i in k.range\(n\)")
def python_range(k, x, h, n, eps):
    for i in range(n):
        x.store(i, 1.0)


@misuse("is one value, not a list; a load gives a list only with vec=2 or more")
def iterating_one_value(k, x, h, n, eps):
    for e in x.load(0):
        x.store(0, e)


@misuse("k.add takes operands of one type, not u32 and f32; convert with .to")
def mixed_types(k, x, h, n, eps):
    k.tid + eps


@misuse("k.add takes operands of one type, not u32 and s32")
def mixed_signs(k, x, h, n, eps):
    k.tid + k.tid.to(s32)


@misuse("a comparison takes operands of one type, not u32 and s32")
def comparing_mixed_signs(k, x, h, n, eps):
    k.tid < n.to(s32)  # noqa: B015


@misuse("k.sqrt takes f32, f64, not u32")
def no_such_form(k, x, h, n, eps):
    k.sqrt(n)


@misuse("k.fma takes 3 operands, not 2")
def wrong_arity(k, x, h, n, eps):
    k.fma(eps, eps)


@misuse("k.max of Python numbers alone: compute it in Python")
def numbers_alone(k, x, h, n, eps):
    k.max(1.0, 2.0)


@misuse('k.rsqr: no PTX operation has this name; did you mean "rsqrt"')
def misspelt(k, x, h, n, eps):
    k.rsqr(eps)


@misuse(r"x \(global f32\)\[...\]: say .load\(index\), which gives a Value")
def brackets_of_a_pointer(k, x, h, n, eps):
    x[k.tid]


@misuse(r"x \(global f32\)\[...\] = ...: say .store\(index, value\)")
def assignment_to_a_pointer(k, x, h, n, eps):
    x[k.tid] = 1.0


@misuse(r"shared_1 \(shared f32\)\[...\]: say .load")
def brackets_of_a_shared_array(k, x, h, n, eps):
    k.shared(f32, 8, 8)[k.tid, 0]


@misuse("1.5 is not an integer, but u32 needs one")
def float_for_an_integer(k, x, h, n, eps):
    k.tid + 1.5


@misuse("-1 does not fit into u32, which holds 0 to 4294967295")
def immediate_out_of_range(k, x, h, n, eps):
    k.tid < -1  # noqa: B015


@misuse("1e[+]?39 is too large for f32")
def float_out_of_range(k, x, h, n, eps):
    eps * 1e39


@misuse("True is a Python bool, where a f32 is wanted")
def bool_for_a_number(k, x, h, n, eps):
    eps * True


@misuse("/ on u32: use // for integers")
def true_division_of_integers(k, x, h, n, eps):
    n / 2


@misuse(r"// on s32: PTX rounds to zero and Python down; say k.div\(a, b\)")
def floor_division_of_signed(k, x, h, n, eps):
    n.to(s32) // 2


@misuse(r"% on s32: .* say k.rem\(a, b\)")
def remainder_of_signed(k, x, h, n, eps):
    n.to(s32) % 2


@misuse("// on f32: it is for unsigned integers; floats have / and k.floor")
def floor_division_of_floats(k, x, h, n, eps):
    eps // 2.0


@misuse("shl of a u32 by 32 shifts everything out")
def shift_too_far(k, x, h, n, eps):
    n << 32


@misuse("k.exp2: no option 'rnd' for this type; it has ftz")
def unknown_option(k, x, h, n, eps):
    k.exp2(eps, rnd="rn")


@misuse("k.add: rnd='up' is not one of rn, rz, rm, rp")
def unknown_rounding(k, x, h, n, eps):
    k.add(eps, eps, rnd="up")


@misuse("k.lop3: its last operand is part of the instruction and must be a Python int")
def immediate_that_is_a_float(k, x, h, n, eps):
    k.lop3(n, n, n, 0.5)


@misuse("a f32 becomes s32 only with a rounding: .to\\(s32, 'rz'\\) truncates")
def float_to_integer_without_rounding(k, x, h, n, eps):
    eps.to(s32)


@misuse("f32 to f64 is exact and takes no rounding")
def rounding_what_is_exact(k, x, h, n, eps):
    eps.to(f64, "rn")


@misuse("does not become bf16 in one rounding; go through .to\\(f32\\)")
def rounding_twice(k, x, h, n, eps):
    eps.to(f64).to(bf16)


@misuse("has 32 bits that cannot be read as u64, which has 64")
def bits_of_another_width(k, x, h, n, eps):
    eps.bits(u64)


@misuse("k.pack: .* do not make a bf16x2")
def packing_the_wrong_lanes(k, x, h, n, eps):
    k.pack(bf16x2, n, n)


@misuse("k.unpack: .* has no lanes")
def unpacking_a_float(k, x, h, n, eps):
    k.unpack(eps)


@misuse("k.select: .* is not a predicate; compare first")
def selecting_by_a_number(k, x, h, n, eps):
    k.select(n, eps, 1.0)


@misuse("u8 lives in memory only; a register holds it as u32")
def var_of_a_byte(k, x, h, n, eps):
    k.var(u8)


@misuse("tf32 is wanted|tf32 has no constants")
def constant_of_tf32(k, x, h, n, eps):
    k.var(tf32, 1.0)


@misuse(r"eps \(f32\) where u32 is wanted; convert with .to\(u32\)")
def setting_a_var_to_another_type(k, x, h, n, eps):
    k.var(u32).set(eps)


@misuse("neither a value of this kernel nor a number")
def adding_a_string(k, x, h, n, eps):
    eps + "1"


@misuse("k.comment: 'é' is not one line of ASCII")
def comment_that_is_not_ascii(k, x, h, n, eps):
    k.comment("é")


@misuse(r"k.allow\('wrong-space', ''\): the reason is one line of ASCII")
def allowed_without_a_reason(k, x, h, n, eps):
    with k.allow("wrong-space", ""):
        x.store(0, 1.0)


@misuse("k.asm: .* is not ASCII, which ptxas demands even of comments")
def asm_that_is_not_ascii(k, x, h, n, eps):
    k.asm("// é")


# ---- scopes, loops and branches -------------------------------------------------------------------------


@misuse("is used outside of the k.when branch that defines it, which may not have run; declare a Var before it")
def value_outside_of_its_branch(k, x, h, n, eps):
    with k.when(k.tid < n):
        y = x.load(k.tid)
    x.store(k.tid, y)


@misuse("is used outside of the k.when branch that defines it")
def value_of_the_other_branch(k, x, h, n, eps):
    with k.when(k.tid < n):
        y = x.load(k.tid)
    with k.otherwise():
        x.store(k.tid, y)


@misuse("is used outside of the k.range body that defines it")
def value_outside_of_its_loop(k, x, h, n, eps):
    for i in k.range(4):
        y = x.load(i)
    x.store(k.tid, y)


@misuse("is used outside of the k.range body that defines it")
def index_of_a_loop_after_it(k, x, h, n, eps):
    for i in k.range(4):
        x.store(i, 0.0)
    x.store(i, 1.0)


@misuse("is used outside of the k.range body that defines it")
def value_of_another_turn_of_an_unrolled_loop(k, x, h, n, eps):
    last = None
    for i in k.range(8, unroll=4):
        if last is not None:
            x.store(i, last)
        last = x.load(i)


@misuse("a k.range body was left early: break and return run while the kernel is built")
def breaking_out_of_a_range(k, x, h, n, eps):
    for i in k.range(n):
        x.store(i, 1.0)
        break
    x.store(0, 1.0)


@misuse("a k.range body was left early")
def breaking_out_at_the_end(k, x, h, n, eps):
    for _ in k.range(n):
        break


@misuse("a k.range body was left early")
def returning_from_a_range(k, x, h, n, eps):
    for _ in k.range(n):
        return


@misuse(r"returning_from_a_branch, line \d+: `return` in a `with k.` block runs while the kernel is built")
def returning_from_a_branch(k, x, h, n, eps):
    with k.when(k.tid >= n):
        return
    x.store(k.tid, 1.0)


@misuse(r"line \d+: `break` in a `with k.` block")
def breaking_out_of_a_loop(k, x, h, n, eps):
    for _ in range(2):
        with k.loop() as loop:
            loop.leave_if(k.tid < n)
            break


@misuse("k.loop: nothing leaves this loop; say loop.leave_if")
def endless_loop(k, x, h, n, eps):
    with k.loop():
        x.store(0, 1.0)


@misuse("leave_if: the loop is closed already")
def leaving_a_closed_loop(k, x, h, n, eps):
    with k.loop() as loop:
        loop.leave_if(k.tid < n)
    loop.leave_if(k.tid < n)


@misuse(r"k.otherwise\(\) must follow a k.when branch at once")
def otherwise_alone(k, x, h, n, eps):
    with k.when(k.tid < n):
        x.store(0, 1.0)
    x.store(1, 1.0)
    with k.otherwise():
        x.store(2, 1.0)


@misuse(r"k.when\(True\): this is known while the kernel is built; use Python's own if")
def branching_on_a_python_bool(k, x, h, n, eps):
    with k.when(True):
        x.store(0, 1.0)


@misuse(r"k.when: .* is not a predicate; compare, as in k.when\(i < n\)")
def branching_on_a_number(k, x, h, n, eps):
    with k.when(k.tid):
        x.store(0, 1.0)


@misuse("k.range: a step of 0 never ends")
def step_of_nothing(k, x, h, n, eps):
    for _ in k.range(0, 4, 0):
        pass


@misuse(r"k.range: bounds of one type u32, s32, u64 or s64, not \['s64', 'u32'\]")
def bounds_of_two_types(k, x, h, n, eps):
    for _ in k.range(n.to(s64), n):
        pass


@misuse("k.range: unroll needs bounds that are known while the kernel is built")
def unrolling_what_is_not_known(k, x, h, n, eps):
    for _ in k.range(n, unroll=4):
        pass


@misuse("4294967296 does not fit into u32")
def index_that_overflows(k, x, h, n, eps):
    for _ in k.range(0, 2**32 - 1):
        pass


@misuse("k.range: a step that is a value must be unsigned")
def step_of_unknown_direction(k, x, h, n, eps):
    for _ in k.range(0, n.to(s32), n.to(s32)):
        pass


# ---- barriers and collectives ---------------------------------------------------------------------------


@misuse(r"k.sync\(\) waits for the whole block, but it stands in a k.when branch that is decided for each thread")
def barrier_in_a_divergent_branch(k, x, h, n, eps):
    with k.when(k.tid < n):
        k.sync()


@misuse(r"k.sync\(\) waits for the whole block, but it stands in a k.otherwise branch")
def barrier_in_the_other_branch(k, x, h, n, eps):
    with k.when(k.tid < n):
        x.store(0, 1.0)
    with k.otherwise():
        k.sync()


@misuse(r"k.sync\(\) waits for the whole block, but it stands in a k.when branch that is decided for each warp")
def barrier_for_one_warp(k, x, h, n, eps):
    with k.when(k.warp == 0):
        k.sync()


@misuse(r"k.sync\(\) waits for the whole block, but it stands in a k.range body that is decided for each thread")
def barrier_in_a_divergent_loop(k, x, h, n, eps):
    for _ in k.range(k.tid, n, 128):
        k.sync()


@misuse("a k.loop body that some threads leave earlier than others holds a barrier or collective for the whole block")
def barrier_before_a_divergent_exit(k, x, h, n, eps):
    with k.loop() as loop:
        k.sync()
        loop.leave_if(x.load(k.tid) > 0.0)


@misuse(r"k.sync\(\) waits for the whole block, but it stands in a k.loop body")
def barrier_behind_a_divergent_exit(k, x, h, n, eps):
    with k.loop() as loop:
        loop.leave_if(x.load(k.tid) > 0.0)
        k.sync()


@misuse(r"k.sync\(\) waits for the whole block")
def barrier_by_a_var_that_differs(k, x, h, n, eps):
    mine = k.var(u32, 0)
    mine += k.lane
    with k.when(mine == 0):
        k.sync()


@misuse(r"k.sync\(\) waits for the whole block")
def barrier_by_a_var_that_was_set_in_a_branch(k, x, h, n, eps):
    found = k.var(u32, 0)
    with k.when(k.lane == 3):
        found.set(1)
    with k.when(found == 0):
        k.sync()


@misuse("k.warp_sum waits for the whole warp, but it stands in a k.when branch that is decided for each thread")
def shuffle_in_a_divergent_branch(k, x, h, n, eps):
    with k.when(k.tid < n):
        k.warp_sum(eps)


@misuse("k.block_sum waits for the whole block")
def block_sum_in_one_warp(k, x, h, n, eps):
    with k.when(k.warp == 0):
        k.block_sum(eps)


@misuse("k.block_sum needs whole warps, not 100 threads", threads=100)
def block_sum_of_a_part_of_a_warp(k, x, h, n, eps):
    k.block_sum(eps)


@misuse("k.block_max takes f32, .*, not pred; .to.u32. makes it 0 or 1")
def block_max_of_a_predicate(k, x, h, n, eps):
    k.block_max(n > 0)


@misuse("k.warp_min: 3.0 is not a Value")
def warp_min_of_a_number(k, x, h, n, eps):
    k.warp_min(3.0)


@misuse("k.warp_sum: width=3 is not a power of two")
def warp_sum_of_three(k, x, h, n, eps):
    k.warp_sum(eps, width=3)


@misuse("k.block_argmax waits for the whole block")
def block_argmax_in_a_branch(k, x, h, n, eps):
    with k.when(k.tid < n):
        k.block_argmax(eps, k.tid)


@misuse("k.warp_reduce: no instruction is named 'addd'; did you mean \"add\"")
def unknown_reduction(k, x, h, n, eps):
    k.warp_reduce(eps, "addd")


@misuse("k.block_reduce takes .*u32.*, not f32; convert")
def bits_of_a_float_reduced(k, x, h, n, eps):
    k.block_reduce(eps, "and_")


@misuse("barrier 16: there are 0 to 15")
def barrier_that_does_not_exist(k, x, h, n, eps):
    k.sync(16)


@misuse("a barrier for 33 threads: whole warps are wanted")
def barrier_for_a_part_of_a_warp(k, x, h, n, eps):
    k.sync(1, threads=33)


@misuse("k.shuffle: 'left' is not one of down, up, xor, idx")
def unknown_shuffle(k, x, h, n, eps):
    k.shuffle(eps, "left", 1)


@misuse("k.shuffle: width=3 is not a power of two")
def shuffle_of_three(k, x, h, n, eps):
    k.shuffle(eps, "down", 1, width=3)


@misuse("k.vote: .* is not a predicate")
def vote_on_a_number(k, x, h, n, eps):
    k.vote("any", n)


@misuse("k.vote: 'most' is not one of any, all, uni, ballot")
def unknown_vote(k, x, h, n, eps):
    k.vote("most", n > 1)


@misuse(r"k.fence\('grid'\): known are block, gpu, system")
def unknown_fence(k, x, h, n, eps):
    k.fence("grid")


# ---- memory ---------------------------------------------------------------------------------------------


@misuse(r"shared memory shared_1 is read after a write with no k.sync\(\) between")
def read_after_write(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    tile.store(k.tid, 1.0)
    tile.load(127 - k.tid)


@misuse("shared memory shared_1 is written after a read with no k.sync")
def write_after_read(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    y = tile.load(127 - k.tid)
    tile.store(k.tid, y)


@misuse("shared_1 is read at the end of the loop's body and written at its start: the next iteration overwrites")
def write_after_read_across_the_loop_edge(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    for i in k.range(n):
        tile.store(k.tid, x.load(i))
        k.sync()
        tile.load(127 - k.tid)


@misuse("shared_1 is written at the end of the loop's body and read at its start")
def read_after_write_across_the_loop_edge(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    for i in k.range(n):
        tile.load(127 - k.tid)
        k.sync()
        tile.store(k.tid, x.load(i))


@misuse("shared_1 is read at the end of the loop's body and written at its start")
def loop_edge_of_a_loop_without_end(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    i = k.var(u32, 0)
    with k.loop() as loop:
        loop.leave_if(i >= n)
        tile.store(k.tid, 1.0)
        k.sync()
        tile.load(127 - k.tid)
        i += 1


@misuse(r"shared memory shared_1 is read after a write with no k.sync\(\)")
def write_in_a_branch_only(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    with k.when(k.lane == 0):
        tile.store(k.warp, 1.0)
    tile.load(k.lane)


@misuse(r"shared memory shared_1 is read after a write with no k.sync\(\)")
def barrier_in_one_branch_only(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    tile.store(k.tid, 1.0)
    with k.when(n > 3):
        k.sync()
    tile.load(k.lane)


@misuse(r"shared memory shared_1\[1\] is read after a write with no k.sync\(\)")
def read_after_write_of_a_stage(k, x, h, n, eps):
    ring = k.shared(f32, 128, stages=2)
    ring[1].store(k.tid, 1.0)
    ring[0].load(127 - k.tid)
    ring[1].load(127 - k.tid)


@misuse(r"shared_1 is read after a write with no k.sync_warp\(\) between")
def read_after_write_within_a_warp(k, x, h, n, eps):
    mine = k.shared(f32, 128, per="warp")
    mine.store(k.tid, 1.0)
    mine.load(k.tid ^ 1)


@misuse(r"shared_1 is read after a write with no k.sync\(\) between")
def warp_barrier_for_the_block_s_memory(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    tile.store(k.tid, 1.0)
    k.sync_warp()
    tile.load(k.tid ^ 32)


@misuse(r"element 128 of shared_1 \(shared f32\), which has 128")
def shared_index_out_of_bounds(k, x, h, n, eps):
    k.shared(f32, 128).load(128)


@misuse("element 124 to 127 of shared_1")
def shared_vector_out_of_bounds(k, x, h, n, eps):
    k.shared(f32, 126).load(124, vec=4)


@misuse("element -1 of local_1")
def local_index_out_of_bounds(k, x, h, n, eps):
    k.local(f32, 4).store(-1, 0.0)


@misuse(r"shared_1 \(shared f32\)\[2\]: it has 2 stages")
def stage_out_of_bounds(k, x, h, n, eps):
    k.shared(f32, 4, stages=2)[2].load(0)


@misuse("has 2 dimensions, the index has 3")
def index_of_too_many_dimensions(k, x, h, n, eps):
    k.shared(f32, 4, 4).load((1, 2, 3))


@misuse("a vector of 4 must start at a multiple of 4, and the index is only known to be one of 1")
def misaligned_vector(k, x, h, n, eps):
    x.load(k.tid, vec=4)


@misuse("a vector of 4 must start at a multiple of 4, and the index is only known to be one of 2")
def misaligned_constant(k, x, h, n, eps):
    x.load(6, vec=4)


@misuse("a vector of 2 must start at a multiple of 2, and the index is only known to be one of 1")
def misaligned_after_an_odd_step(k, x, h, n, eps):
    (x + n).load(0, vec=2)


@misuse("a vector of 4 must start at a multiple of 4")
def vector_at_a_var(k, x, h, n, eps):
    i = k.var(u32, 0)
    i += 4
    x.load(i, vec=4)


@misuse("a vector of 3 f32 is not 1, 2, 4, ... of at most 16 bytes")
def vector_of_three(k, x, h, n, eps):
    x.load(0, vec=3)


@misuse("a vector of 8 f32 is not 1, 2, 4, ... of at most 16 bytes")
def vector_too_wide(k, x, h, n, eps):
    x.load(0, vec=8)


@misuse(r"k.multiple_of\(.*, 3\): promise a power of two")
def promise_of_three(k, x, h, n, eps):
    k.multiple_of(n, 3)


@misuse(r"where=.* is not a predicate; compare, as in where=i < n")
def masking_by_a_number(k, x, h, n, eps):
    x.load(k.tid, where=n)


@misuse("cache='L1': 'L1' is not one of ca, cg")
def unknown_cache_hint(k, x, h, n, eps):
    x.load(0, cache="L1")


@misuse("order='strong' scope='gpu': known are relaxed, acquire")
def unknown_order(k, x, h, n, eps):
    x.load(0, order="strong")


@misuse(r"is not an index; indices into global memory: u32, s32, u64 or s64")
def index_that_is_a_float(k, x, h, n, eps):
    x.load(eps)


@misuse(r"is not an index; indices into shared memory: u32 or s32")
def shared_index_of_64_bits(k, x, h, n, eps):
    k.shared(f32, 4).load(n.to(u64))


@misuse(r"eps \(f32\) where bf16 is wanted; convert with .to\(bf16\)")
def storing_another_type(k, x, h, n, eps):
    h.store(0, eps)


@misuse(r"16 u8 cannot be stored together; cast to u8x4")
def sixteen_bytes(k, x, h, n, eps):
    k.shared(u8, 64).store(0, [n] * 16)


@misuse("no atomic 'mul'; known: add, min, max")
def unknown_atomic(k, x, h, n, eps):
    x.atomic("mul", 0, eps)


@misuse("atomic max is for u32, s32, u64, s64")
def atomic_of_the_wrong_type(k, x, h, n, eps):
    x.atomic("max", 0, eps)


@misuse("atomic cas takes 2 values, not 1")
def atomic_with_too_few_values(k, x, h, n, eps):
    x.atomic("cas", 0, eps)


@misuse(r"atomic exch is for .* and returns the old value")
def reduction_that_returns_nothing(k, x, h, n, eps):
    x.reduce("exch", 0, eps)


@misuse(r"k.shared: a shape of positive Python ints is wanted, not \(0,\)")
def empty_array(k, x, h, n, eps):
    k.shared(f32, 0)


@misuse("k.shared: align=48 is not a power of two")
def odd_alignment(k, x, h, n, eps):
    k.shared(f32, 4, align=48)


@misuse("k.shared: per='thread' is neither 'block' nor 'warp'")
def array_of_a_thread(k, x, h, n, eps):
    k.shared(f32, 4, per="thread")


@misuse("only shared memory has a counterpart in other blocks of the cluster")
def global_memory_of_another_block(k, x, h, n, eps):
    k.in_block(x, 1)


# ---- tensor cores ---------------------------------------------------------------------------------------


def fragments(k, kind, a, b, acc=4):
    value = k.lane.bits(kind)
    return k.vars(f32, acc), [value] * a, [value] * b


@misuse("k.mma m16n8k16: a, b and the accumulator have 4, 2, 4 registers, not 2, 1, 4")
def too_few_registers(k, x, h, n, eps):
    k.mma("m16n8k16", *fragments(k, bf16x2, 2, 1))


@misuse("k.mma: no m16n16k16 of a bf16x2, b bf16x2, accumulator f32; for this a there is m16n8k16, m16n8k8")
def unknown_shape(k, x, h, n, eps):
    k.mma("m16n16k16", *fragments(k, bf16x2, 4, 2))


@misuse("k.mma: no m16n8k16 of a f32, b f32, accumulator f32; .* none at all: use packs such as bf16x2")
def mma_of_floats(k, x, h, n, eps):
    k.mma("m16n8k16", k.vars(f32, 4), [eps] * 4, [eps] * 2)


@misuse(r"k.mma: the accumulator must be Vars: acc = k.vars\(f32, 4\)")
def mma_into_values(k, x, h, n, eps):
    _, a, b = fragments(k, bf16x2, 4, 2)
    k.mma("m16n8k16", [eps] * 4, a, b)


@misuse("k.mma waits for the whole warp")
def mma_in_a_divergent_branch(k, x, h, n, eps):
    acc, a, b = fragments(k, bf16x2, 4, 2)
    with k.when(k.tid < n):
        k.mma("m16n8k16", acc, a, b)


@misuse("needs sm_80 or newer; this kernel is built for sm_75", arch="sm_75")
def mma_that_is_too_new(k, x, h, n, eps):
    k.mma("m16n8k16", *fragments(k, bf16x2, 4, 2))


@misuse("k.ldmatrix: a row starts at a multiple of 8 bf16 .16 bytes., and the index is only known to be one of 1")
def ldmatrix_off_a_row(k, x, h, n, eps):
    k.ldmatrix(k.shared(bf16, 512), k.lane)


@misuse("k.ldmatrix: .* is not shared memory of f16, bf16, f32 or 8-bit elements")
def ldmatrix_from_global_memory(k, x, h, n, eps):
    k.ldmatrix(h, 0)


@misuse("k.ldmatrix: 3 matrices; 1, 2 or 4 are wanted")
def three_matrices(k, x, h, n, eps):
    k.ldmatrix(k.shared(bf16, 512), 0, 3)


def operands(k):
    tile = k.shared(bf16, 64, 64, align=1024)
    return k.matrix(tile, stride=512), k.matrix(tile, stride=512)


@misuse(r"k.wgmma: k.wgmma_fence\(\) must come first", arch="sm_90a")
def wgmma_without_a_fence(k, x, h, n, eps):
    k.wgmma("m64n64k16", k.vars(f32, 32), *operands(k), bf16)


@misuse(r"is still being computed by wgmma: k.wgmma_commit\(\), k.wgmma_wait\(0\) first", arch="sm_90a")
def wgmma_read_too_early(k, x, h, n, eps):
    acc, (a, b) = k.vars(f32, 32), operands(k)
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, a, b, bf16)
    k.wgmma_commit()
    x.store(k.tid, acc[0])


@misuse("wgmma is never waited for", arch="sm_90a")
def wgmma_never_waited_for(k, x, h, n, eps):
    acc, (a, b) = k.vars(f32, 32), operands(k)
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, a, b, bf16)
    k.wgmma_commit()


@misuse("k.wgmma_wait: nothing was committed", arch="sm_90a")
def wgmma_never_committed(k, x, h, n, eps):
    acc, (a, b) = k.vars(f32, 32), operands(k)
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, a, b, bf16)
    k.wgmma_wait(0)


@misuse("k.wgmma m64n60k16: m64nNk16 is wanted for bf16, N a multiple of 8", arch="sm_90a")
def wgmma_of_an_odd_width(k, x, h, n, eps):
    k.wgmma("m64n60k16", k.vars(f32, 30), *operands(k), bf16)


@misuse(r"k.wgmma m64n64k16: the accumulator is k.vars\(f32, 32\)", arch="sm_90a")
def wgmma_with_too_few_vars(k, x, h, n, eps):
    k.wgmma("m64n64k16", k.vars(f32, 16), *operands(k), bf16)


@misuse("k.wgmma takes four whole warps; the block has 64 threads", arch="sm_90a", threads=64)
def wgmma_of_two_warps(k, x, h, n, eps):
    acc, (a, b) = k.vars(f32, 32), operands(k)
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, a, b, bf16)


@misuse("exists on sm_90a alone", arch="sm_90")
def wgmma_elsewhere(k, x, h, n, eps):
    k.wgmma_fence()


@misuse(r"shared_1 is read after a write with no k.sync\(\) between", arch="sm_90a")
def wgmma_of_a_copy_that_is_not_waited_for(k, x, h, n, eps):
    tile, full, acc = k.shared(bf16, 64, 64, align=1024), k.mbarrier(), k.vars(f32, 32)
    left = k.matrix(tile, stride=512)
    k.copy_bulk(tile, 0, h, 0, 4096, full)
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, left, k.deeper(left, 16, bf16), bf16)


@misuse(r"shared_1 is written after a read with no k.sync\(\) between", arch="sm_90a")
def copy_over_what_wgmma_reads(k, x, h, n, eps):
    acc, (a, b) = k.vars(f32, 32), operands(k)
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, a, b, bf16)
    k.wgmma_commit()
    k.wgmma_wait(0)
    k.copy_bulk(k.arrays[0], 0, h, 0, 4096, k.mbarrier())


@misuse(
    r"read by a bulk copy or wgmma after an ordinary store: the threads that stored say k.fence\('async'\)", "sm_90a"
)
def wgmma_of_what_threads_stored(k, x, h, n, eps):
    acc, (a, b) = k.vars(f32, 32), operands(k)
    k.arrays[0].store(k.tid, k.const(bf16, 1.0))
    k.sync()
    k.wgmma_fence()
    k.wgmma("m64n64k16", acc, a, b, bf16)


@misuse(r"shared_1 is read by a bulk copy or wgmma after an ordinary store")
def bulk_store_of_what_threads_stored(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    tile.store(k.tid, eps)
    k.sync()
    k.store_bulk(x, 0, tile, 0, 128)


@misuse("k.matrix: swizzle=48 is not one of 0, 128, 64, 32 bytes")
def odd_swizzle(k, x, h, n, eps):
    k.matrix(k.shared(bf16, 64, 64), stride=512, swizzle=48)


# ---- asynchronous copies --------------------------------------------------------------------------------


@misuse(r"shared_1 is read while cp.async still writes it: k.async_commit\(\), k.async_wait\(0\), then k.sync\(\)")
def reading_what_has_not_arrived(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    k.copy_async(tile, k.tid, x, k.tid, 1)
    k.async_commit()
    k.sync()
    tile.load(k.tid)


@misuse("shared_1 is read while cp.async still writes it")
def waiting_for_the_wrong_group(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    k.copy_async(tile, k.tid, x, k.tid, 1)
    k.async_commit()
    k.async_wait(1)
    k.sync()
    tile.load(k.tid)


@misuse(r"shared_1 is read after a write with no k.sync\(\) between")
def waiting_without_a_barrier(k, x, h, n, eps):
    tile = k.shared(f32, 128)
    k.copy_async(tile, k.tid, x, k.tid, 1)
    k.async_commit()
    k.async_wait(0)
    tile.load(127 - k.tid)


@misuse("cp.async into shared_1 is never waited for")
def copy_never_waited_for(k, x, h, n, eps):
    k.copy_async(k.shared(f32, 128), k.tid, x, k.tid, 1)


@misuse("k.copy_async: 3 f32 are 12 bytes; 4, 8 or 16 are wanted")
def copy_of_twelve_bytes(k, x, h, n, eps):
    k.copy_async(k.shared(f32, 128), 0, x, 0, 3)


@misuse("k.copy_async: 4 elements of x .* must start at a multiple of 4")
def misaligned_copy(k, x, h, n, eps):
    k.copy_async(k.shared(f32, 512), k.tid * 4, x, k.tid, 4)


@misuse("k.copy_async: from global to shared memory of one element type, not h .global bf16. to shared_1")
def copy_of_another_type(k, x, h, n, eps):
    k.copy_async(k.shared(f32, 512), 0, h, 0, 4)


@misuse("element 512 to 515 of shared_1")
def copy_out_of_bounds(k, x, h, n, eps):
    k.copy_async(k.shared(f32, 512), 512, x, 0, 4)


@misuse("k.copy_bulk: 3 f32 are 12 bytes; a multiple of 16 is wanted")
def bulk_copy_of_twelve_bytes(k, x, h, n, eps):
    k.copy_bulk(k.shared(f32, 128), 0, x, 0, 3, k.mbarrier())


@misuse("k.copy_bulk: the bytes are only known to be a multiple of 4; 16 is wanted: promise it with k.multiple_of")
def bulk_copy_of_any_length(k, x, h, n, eps):
    k.copy_bulk(k.shared(f32, 128), 0, x, 0, n, k.mbarrier())


@misuse(r"shared_1 is read after a write with no k.sync\(\) between")
def bulk_copy_that_is_not_waited_for(k, x, h, n, eps):
    tile, full = k.shared(f32, 128), k.mbarrier()
    k.copy_bulk(tile, 0, x, 0, 128, full)
    tile.load(0)


@misuse("an mbarrier's parity is 0 or 1, not 2")
def parity_of_two(k, x, h, n, eps):
    k.mbarrier().wait(2)


@misuse("an mbarrier for 0 arrivals")
def barrier_for_nobody(k, x, h, n, eps):
    k.mbarrier().init(0)


@misuse(r"shared_1 is read after a write with no k.sync\(\) between")
def mbarrier_used_before_all_see_it(k, x, h, n, eps):
    full = k.mbarrier()
    full.init(1)
    full.wait(0)


@misuse("element 2 of shared_1")
def mbarrier_out_of_bounds(k, x, h, n, eps):
    k.mbarrier(2).arrive(2)


@misuse("cp.async.* needs sm_80 or newer; this kernel is built for sm_75", arch="sm_75")
def copy_that_is_too_new(k, x, h, n, eps):
    k.copy_async(k.shared(f32, 128), 0, x, 0, 4)


# ---- what Python obeys while the kernel is built --------------------------------------------------------


@misuse(r"line \d+: .* never entered, so it guards nothing: write `with k.when\(c\):`")
def branch_without_with(k, x, h, n, eps):
    k.when(k.tid < n)
    x.store(k.tid, 1.0)


@misuse(r"never entered, so it guards nothing: write `for i in k.range\(n\):`")
def range_without_for(k, x, h, n, eps):
    k.range(n)
    x.store(k.tid, 1.0)


@misuse(r"line \d+: `k.sync` alone does nothing; call it: k.sync\(\.\.\.\)")
def barrier_that_is_not_called(k, x, h, n, eps):
    k.sync  # noqa: B018
    x.store(k.tid, 1.0)


@misuse(r"`k.trap` alone does nothing; call it")
def statement_that_is_not_called(k, x, h, n, eps):
    with k.when(k.tid > n):
        k.trap  # noqa: B018


@misuse(r"k.tid = ...: k is the builder and keeps nothing; use a Python name, or k.var")
def assigning_a_special_register(k, x, h, n, eps):
    k.tid = 3


@misuse("k.threads = ...: k is the builder")
def assigning_the_threads(k, x, h, n, eps):
    k.threads = 64


@misuse("k.total = ...: k is the builder and keeps nothing")
def keeping_something_in_k(k, x, h, n, eps):
    k.total = x.load(0)


@misuse("k.arrays = ...: k is the builder and keeps nothing")
def replacing_what_k_keeps(k, x, h, n, eps):
    k.arrays = [k.shared(f32, 32)]


@misuse(r"returns_a_value returns %f\d+ \(f32\): a kernel returns nothing; store it")
def returns_a_value(k, x, h, n, eps):
    return x.load(0)


@misuse("yields_a_value: a `yield` makes it a generator, which writes nothing")
def yields_a_value(k, x, h, n, eps):
    x.store(0, 1.0)
    yield x.load(0)


@misuse(r"line \d+: `v = …` in `with k.when` binds a Python name .*; declare v = k.var.*v.set\(...\) or \+= inside")
def number_that_escapes_a_branch(k, x, h, n, eps):
    v = k.var(f32)
    with k.when(k.tid < 3):
        v = 1.0
    x.store(k.tid, v)


@misuse("`v = …` in `with k.otherwise` binds a Python name")
def number_that_escapes_the_other_branch(k, x, h, n, eps):
    with k.when(k.tid < 3):
        v = 1.0
    with k.otherwise():
        v = 2.0
    x.store(k.tid, v)


@misuse(r"`count \+= …` in `with k.when` binds a Python name")
def python_count_in_a_branch(k, x, h, n, eps):
    count = 0.0
    with k.when(k.tid < 3):
        count += 1.0
    x.store(k.tid, count)


@misuse("`v = …` in `for … in k.range` binds a Python name .* line .* reads it for every thread")
def sum_that_is_bound_anew(k, x, h, n, eps):
    v = k.var(f32)
    for _ in k.range(4):
        v = v + 1.0
    x.store(k.tid, v)


@misuse("`v = …` in `for … in k.range` binds a Python name .* no later turn sees it")
def turn_that_wants_the_turn_before(k, x, h, n, eps):
    v = k.var(f32)
    for j in k.range(4):
        v = v + 1.0
        x.store(j, v)


@misuse("`(here|there) = …` in `for … in k.range` binds a Python name .* no later turn sees it")
def buffers_that_change_places(k, x, h, n, eps):
    here, there = k.local(f32, 4), k.local(f32, 4)
    for j in k.range(4):
        there.store(j, here.load(j))
        here, there = there, here


@misuse("`done = …` in `with k.loop` binds a Python name")
def flag_of_a_loop(k, x, h, n, eps):
    done = False
    with k.loop() as loop:
        loop.leave_if(k.tid < n)
        done = True
    if done:
        x.store(k.tid, 1.0)


# ---- Python, NumPy and C by habit -----------------------------------------------------------------------


@misuse(r"shared_1 \(shared f32\): vec=.* is not a Python int; an index of two dimensions is a tuple")
def index_without_its_brackets(k, x, h, n, eps):
    k.shared(f32, 8, 8).load(k.lane, k.lane + 1)


@misuse(r"\.store\(\) takes .*; an index of two dimensions is a tuple: .store\(\(row, column\), value\)")
def stored_index_without_its_brackets(k, x, h, n, eps):
    k.shared(f32, 8, 8).store(k.lane, k.lane, 1.0)


@misuse("is not a Python float: it exists on the GPU only; .to.f32. converts it.*k.sqrt")
def python_float(k, x, h, n, eps):
    float(n)


@misuse("eps .f32. is not a Python float: .*k.sqrt")
def root_of_math(k, x, h, n, eps):
    math.sqrt(eps)


@misuse("eps .f32. is not a Python int: it exists on the GPU only; .to.s32, 'rz'. truncates")
def python_int(k, x, h, n, eps):
    int(eps)


@misuse("NumPy's sqrt of eps .f32.: .* k.sqrt")
def root_of_numpy(k, x, h, n, eps):
    np.sqrt(eps)


@misuse("NumPy's multiply of eps")
def array_times_a_value(k, x, h, n, eps):
    np.ones(4, np.float32) * eps


@misuse(r"\*\* on eps .f32.: PTX has no powers; say x \* x")
def power(k, x, h, n, eps):
    eps**2


@misuse("round of eps .f32.: say k.round")
def python_round(k, x, h, n, eps):
    round(eps)


@misuse("shared_1 is written after a read with no k.sync.. between.* takes an atomic: shared_1.reduce")
def histogram_without_atomics(k, x, h, n, eps):
    mine = k.shared(u32, 64)
    mine.store(k.lane, mine.load(k.lane) + 1)


@misuse(r"x \(global f32\).store: no option 'mask'; did you mean \"where\"")
def store_with_a_mask(k, x, h, n, eps):
    x.store(k.tid, 1.0, mask=k.tid < n)


@misuse("load: no option 'when'; did you mean \"where\"")
def load_with_a_when(k, x, h, n, eps):
    x.load(k.tid, when=k.tid < n)


@misuse("store: no option 'volatile'; it has where, cache, policy, order, scope")
def store_with_another_option(k, x, h, n, eps):
    x.store(k.tid, 1.0, volatile=True)


@misuse("k.shared: float32 is not a type of the builder; say f32, from trueno_cuda.ptx import f32")
def shared_array_of_a_numpy_type(k, x, h, n, eps):
    k.shared(np.float32, 32)


@misuse("k.shared: 'float32' is not a type of the builder; say f32")
def shared_array_of_a_name(k, x, h, n, eps):
    k.shared("float32", 32)


@misuse(r"k.shared: 32 is not a type of the builder; the type comes first: k.shared\(f32, 32, 33\)")
def shared_array_with_its_type_behind(k, x, h, n, eps):
    k.shared(32, 33, f32)


@misuse("k.var: 'f32' is not a type of the builder; say f32, from")
def var_of_a_name(k, x, h, n, eps):
    k.var("f32")


@misuse("k.var: 0.0 is not a type of the builder; the type comes first: k.var.f32, 0.0.")
def var_of_a_number(k, x, h, n, eps):
    k.var(0.0)


@misuse("k.const: 1.0 is not a type of the builder; the type comes first: k.const.f32, 1.0.")
def constant_with_its_type_behind(k, x, h, n, eps):
    k.const(1.0, f32)


@misuse(".to: 'f32' is not a type of the builder; say f32")
def conversion_to_a_name(k, x, h, n, eps):
    n.to("f32")


@misuse(".to: uint64 is not a type of the builder; say u64")
def conversion_to_a_numpy_type(k, x, h, n, eps):
    n.to(np.uint64)


@misuse("needs sm_90 or newer; this kernel is built for sm_80: say build.arch=.sm_90..", arch="sm_80")
def register_of_a_newer_gpu(k, x, h, n, eps):
    x.store(k.cluster_rank, 1.0)


@pytest.mark.parametrize("name", CASES)
def test_misuse_is_an_error_with_a_message_of_its_own(name: str) -> None:
    body, message, arch, threads = CASES[name]
    body.__annotations__ = {"x": ptr(f32), "h": ptr(bf16), "n": u32, "eps": f32}
    with pytest.raises(BuildError, match=message) as caught:
        kernel(threads=threads)(body).build(arch)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not re.search(r"object at 0x", str(caught.value))


def test_a_value_of_another_kernel_is_refused() -> None:
    kept = []

    @kernel(threads=32)
    def one(k):
        kept.append(k.tid)

    @kernel(threads=32)
    def two(k, x: ptr(f32)):
        x.store(kept[0], 1.0)

    one.build()
    with pytest.raises(BuildError, match="belongs to the kernel one, not to two"):
        two.build()


def test_addresses_cannot_be_forged() -> None:
    """There is no way from a number, or from another address space, to a pointer into shared memory."""

    @kernel(threads=32)
    def forging(k, x: ptr(f32)):
        tile = k.shared(f32, 32)
        for attempt in (
            lambda: tile.address + 4,
            lambda: tile.address.to(u64),
            lambda: tile.address.bits(u32),
            lambda: k.tid.bits(tile.address.type),
            lambda: k.var(tile.address.type, k.tid),
            lambda: k.copy_async(x, 0, x, 0, 4),
            lambda: k.as_global(tile.address, f32),
        ):
            with pytest.raises(BuildError):
                attempt()

    forging.build()


def test_the_traceback_ends_in_the_kernels_own_line() -> None:
    """Or in that of a function that it calls: the builder's frames say nothing to its author."""

    def helper(k, x):
        x.store(k.tid, k.tid)

    @kernel(threads=32)
    def direct(k, x: ptr(f32)):
        with k.when(k.tid + 1.5 < 3):
            x.store(0, 1.0)

    @kernel(threads=32)
    def inside(k, x: ptr(f32)):
        helper(k, x)

    @kernel(threads=32)
    def entering(k, x: ptr(f32)):
        with k.when(True):
            x.store(0, 1.0)

    for source, last in ((direct, "direct"), (inside, "helper"), (entering, "entering")):
        with pytest.raises(BuildError) as caught:
            source.build()
        assert caught.traceback[-1].name == last
        assert sum(frame.name == last for frame in caught.traceback) == 1


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda: kernel(store_one), r"@kernel on store_one: call it, as @kernel\(threads=256\)"),
        (lambda: kernel(threads=32)(nothing), r"nothing: it has no parameter; the builder comes first: def nothing\(k"),
        (lambda: kernel(threads=32)(forgotten), "forgotten: its first parameter is x: .*the builder comes first"),
    ],
)
def test_a_signature_that_is_none_is_refused(made: Callable[[], object], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        made()


def store_one(k, x: ptr(f32)):
    x.store(k.tid, 1.0)


def nothing():
    pass


def forgotten(x: ptr(f32)):
    x.store(0, 1.0)


def test_what_looks_like_a_misuse_and_is_none() -> None:
    """Names that are rebound where the old meaning is not needed, and state of Python's own loops."""

    @kernel(threads=128)
    def fine(k, x: ptr(f32), n: u32):
        total, i = k.var(f32), k.tid * 2
        for i in k.range(4):  # the old i is not read again
            y = x.load(i)
            total += y
        for i in k.range(4):
            y = x.load(i) + 1.0
            y = y * 2.0
            total += y
        with k.when(k.tid < n):
            y = x.load(k.tid)
            x.store(k.tid, y)
        y = x.load(0)
        first = True
        for step in range(4):
            with k.when(k.tid < n + step):
                if first:
                    total.set(0.0)
                first = False
                scaled = [y * e for e in (1.0, 2.0)]
                x.store(k.tid, scaled[0])
        half = 0
        for j in k.range(8, unroll=2):
            x.store(j, 1.0 if half else 2.0)
            half = 1 - half
        opened = k.when(n > 3)
        with opened:
            x.store(0, total)

    assert fine.build().text.count("bra") == 9


@pytest.mark.parametrize("number", [np.float32(2), np.float64(2), np.float16(2), np.int64(2), np.uint8(2)])
def test_numpy_scalars_are_the_numbers_that_they_are(number: np.generic) -> None:
    def text(two: object) -> str:
        @kernel(threads=32)
        def scaled(k, x: ptr(f32)):
            y = x.load(k.tid) * two + two * x.load(k.tid)
            y = k.max(y / two, k.const(f32, two)) + k.var(f32, two)
            x.store(k.tid, k.select(y < two, y, two), where=two > y)
            x.store(k.tid, two)

        return scaled.build().text

    assert text(number) == text(2.0)
    if isinstance(number, np.integer):

        @kernel(threads=32)
        def indexed(k, x: ptr(f32), *, two: type(number)):
            tile = k.shared(f32, two, 32)
            for i in k.range(two):
                x.store(i * two + number, tile.load((two, k.tid)) if two < 2 else 1.0)
                x.load(two)

        indexed.build(two=number)
