"""Accesses of shared memory that keep apart need no barrier between them; those that may meet are refused."""

import operator
import random
from collections.abc import Callable

import numpy as np
import pytest
import trueno
import trueno_cuda
from seeds import fresh_seed
from trueno_cuda.ptx import BuildError, f32, kernel, ptr, s32, u32
from trueno_cuda.ptx.analyze.launch import Launch
from trueno_cuda.ptx.analyze.report import analysis
from trueno_cuda.ptx.analyze.rules import RULES
from unit.cuda.ptx.assembler import assembled

THREADS = 128
BACKEND = "cuda_emulated"
Body = Callable[..., None]
RIGHT: dict[str, Body] = {}
WRONG: dict[str, tuple[Body, int | None]] = {}


def right(body: Body) -> Body:
    """A kernel (k, x, out, half) of 128 threads a block that writes the sum of its 128 elements; half: 64."""
    RIGHT[body.__name__] = body
    return body


def wrong(threads: int | None = THREADS) -> Callable[[Body], Body]:
    """One that races: a barrier is missing, or a condition, or nothing says what keeps its accesses apart."""

    def register(body: Body) -> Body:
        WRONG[body.__name__] = body, threads
        return body

    return register


def built(body: Body, threads: int | None = THREADS):
    body.__annotations__ = {"x": ptr(f32), "out": ptr(f32), "half": u32}
    made = kernel(threads=threads) if threads else kernel(max_threads=THREADS)
    return made(body).build("sm_80")


def filled(k, x):
    tile = k.shared(f32, THREADS)
    tile.store(k.tid, x.load(k.ctaid * THREADS + k.tid))
    return tile


def first(k, out, tile):
    with k.when(k.tid == 0):
        out.store(k.ctaid, tile.load(0))


# ---- trees ----------------------------------------------------------------------------------------------


@right
def halves_by_python(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for d in (64, 32, 16, 8, 4, 2, 1):
        with k.when(k.tid < d):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        k.sync()
    first(k, out, tile)


@right
def halves_of_a_var(k, x, out, half):
    tile, d = filled(k, x), k.var(u32, half)
    k.sync()
    with k.loop() as loop:
        loop.leave_if(d == 0)
        with k.when(k.tid < d):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        k.sync()
        d >>= 1
    first(k, out, tile)


@right
def barrier_first(k, x, out, half):
    tile, d = filled(k, x), k.var(u32, half)
    with k.loop() as loop:
        k.sync()
        loop.leave_if(d == 0)
        with k.when(d > k.tid):
            tile.store(k.tid, tile.load(d + k.tid) + tile.load(k.tid))
        d >>= 1
    first(k, out, tile)


@right
def halves_of_the_counter(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for i in k.range(7):
        d = half >> i
        with k.when(k.tid < d):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        k.sync()
    first(k, out, tile)


@right
def masks(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for d in (64, 32, 16, 8, 4, 2, 1):
        live = k.tid < d
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d, where=live), where=live)
        k.sync()
    first(k, out, tile)


@right
def kept_in_a_register(k, x, out, half):
    tile, d = k.shared(f32, THREADS), k.var(u32, half)
    mine = k.var(f32, x.load(k.ctaid * THREADS + k.tid))
    tile.store(k.tid, mine)
    k.sync()
    with k.loop() as loop:
        loop.leave_if(d == 0)
        with k.when(k.tid < d):
            mine += tile.load(k.tid + d)
            tile.store(k.tid, mine)
        k.sync()
        d >>= 1
    with k.when(k.tid == 0):
        out.store(k.ctaid, mine)


@right
def neighbours(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for d in (1, 2, 4, 8, 16, 32, 64):
        with k.when(k.tid % (2 * d) == 0):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        k.sync()
    first(k, out, tile)


@right
def strides(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for d in (1, 2, 4, 8, 16, 32, 64):
        at = k.tid * (2 * d)
        with k.when(at < THREADS):
            tile.store(at, tile.load(at) + tile.load(at + d))
        k.sync()
    first(k, out, tile)


@right
def strides_by_shifts(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for i in range(7):
        at = k.tid << i + 1
        with k.when(at < THREADS):
            tile.store(at, tile.load(at) + tile.load(at + (1 << i)))
        k.sync()
    first(k, out, tile)


@right
def signed_distance(k, x, out, half):
    tile, d, me = filled(k, x), k.var(s32, half.to(s32)), k.tid.to(s32)
    k.sync()
    with k.loop() as loop:
        loop.leave_if(d == 0)
        with k.when((me < d) & (d > 0)):
            tile.store(me, tile.load(me) + tile.load(me + d))
        k.sync()
        d >>= 1
    first(k, out, tile)


@right
def down_to_a_warp(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for d in (64, 32):
        with k.when(k.tid < d):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        k.sync()
    with k.when(k.warp == 0):
        total = k.warp_sum(tile.load(k.lane))
        with k.when(k.lane == 0):
            out.store(k.ctaid, total)


@right
def odd_lengths(k, x, out, half):
    tile, left = filled(k, x), 127
    k.sync()
    with k.when(k.tid == 0):
        tile.store(0, tile.load(0) + tile.load(127))
    k.sync()
    while left > 1:
        d = (left + 1) // 2
        with k.when(k.tid + d < left):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        k.sync()
        left = d
    first(k, out, tile)


@right
def read_back(k, x, out, half):
    """Each thread reads what it wrote itself, without a barrier; pairs of floats."""
    tile = k.shared(f32, 2 * THREADS)
    tile.store(k.tid * 2, [x.load(k.ctaid * THREADS + k.tid), 0.0])
    mine = sum(tile.load(k.tid * 2, vec=2), k.const(f32, 0.0))
    (tile + k.tid * 2).store(1, mine)
    total = k.block_sum((tile + k.tid * 2).load(1))
    with k.when(k.tid == 0):
        out.store(k.ctaid, total)


@pytest.mark.parametrize("name", RIGHT)
def test_accesses_that_keep_apart(name):
    seed = fresh_seed()
    print(f"seed {seed}")
    made = built(RIGHT[name])
    assembled(made)
    host = np.random.default_rng(seed).integers(-99, 99, (3, THREADS)).astype(np.float32)
    x, out = trueno.to(host, BACKEND), trueno.to(np.zeros(3, np.float32), BACKEND)
    trueno_cuda.run(made, 3, [x, out], (64,), backend=BACKEND)
    np.testing.assert_array_equal(trueno.numpy(out), host.sum(1))
    entry = analysis(f"{name}.ptx", made.text, Launch(), RULES, "sm_80", real=False).record["entries"][0]
    assert not [f for f in entry["findings"] if f["severity"] in ("critical", "high")]


# ---- races ----------------------------------------------------------------------------------------------


@wrong()
def no_barrier_between_two_steps(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    for d in (64, 32):
        with k.when(k.tid < d):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))


@wrong()
def no_barrier_in_the_loop(k, x, out, half):
    tile, d = filled(k, x), k.var(u32, half)
    k.sync()
    with k.loop() as loop:
        loop.leave_if(d == 0)
        with k.when(k.tid < d):
            tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))
        d >>= 1


@wrong()
def no_barrier_before_the_tree(k, x, out, half):
    tile = filled(k, x)
    with k.when(k.tid < 64):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + 64))


@wrong()
def one_thread_too_many(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when(k.tid <= half):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + half))


@wrong()
def one_thread_too_many_by_python(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when(k.tid <= 32):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + 32))


@wrong()
def the_condition_is_of_the_distance_before(k, x, out, half):
    tile, d = filled(k, x), k.var(u32, half)
    k.sync()
    some = k.tid < d
    d >>= 1
    with k.when(some):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))


@wrong()
def the_other_branch(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when(k.tid < half):
        out.store(k.tid, 1.0)
    with k.otherwise():
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + half))


@wrong()
def a_condition_of_another_value(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when((k.tid < half) | (k.tid < 7)):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + half))


@wrong()
def a_distance_that_threads_differ_in(k, x, out, half):
    tile, d = filled(k, x), k.lane + 1
    k.sync()
    with k.when(k.tid < d):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + d))


@wrong()
def a_scan_in_place(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when(k.tid >= half):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid - half))


@wrong()
def halves_from_the_wrong_end(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when(k.tid < half):
        tile.store(k.tid, tile.load(127 - k.tid) + tile.load(k.tid + 1))


@wrong()
def neighbours_with_twice_the_distance(k, x, out, half):
    tile = filled(k, x)
    k.sync()
    with k.when(k.tid % 2 == 0):
        tile.store(k.tid, tile.load(k.tid) + tile.load(k.tid + 2))


@wrong()
def lanes_of_all_warps(k, x, out, half):
    tile = k.shared(f32, 32)
    tile.store(k.lane, 1.0)
    out.store(k.tid, tile.load(k.lane))


@wrong()
def vectors_that_overlap(k, x, out, half):
    tile = k.shared(f32, THREADS + 4)
    tile.store(k.tid, 1.0)
    out.store(k.tid, tile.load(k.multiple_of(k.tid, 4), vec=4)[0])


@wrong()
def a_vector_that_reaches_into_the_others(k, x, out, half):
    tile = k.shared(f32, 8 * THREADS)
    with k.when(k.tid < half):
        near = k.multiple_of(k.tid * 4 + half * 4 - 2, 2)
        tile.store(k.tid * 4, [0.0] * 4)
        out.store(k.tid, tile.load(near, vec=2)[0])


@wrong()
def every_second_by_a_shift(k, x, out, half):
    tile = k.shared(f32, 8 * THREADS)
    tile.store(k.tid << 1, 1.0)
    out.store(k.tid, tile.load(k.tid * 3))


@wrong()
def a_hash_that_wraps_around(k, x, out, half):
    tile = k.shared(f32, 64)
    slot = k.tid * 2654435761 >> 26
    tile.store(slot, 1.0)
    out.store(k.tid, tile.load(slot))


@wrong()
def a_shift_out_of_the_register(k, x, out, half):
    tile = k.shared(f32, 8)
    slot = (k.tid + half) << 30
    tile.store(slot, 1.0)
    out.store(k.tid, tile.load(slot))


@wrong(threads=None)
def a_block_that_the_launch_chooses(k, x, out, half):
    tile = filled(k, x)
    out.store(k.tid, tile.load(k.tid))


@wrong()
def another_turn_of_an_unrolled_loop(k, x, out, half):
    tile = k.shared(f32, 2 * THREADS)
    for i in k.range(4, unroll=2):
        tile.store(k.tid + i, 1.0)
        out.store(k.tid, tile.load(k.tid + i))


@wrong()
def the_next_turn_moves_on(k, x, out, half):
    tile, i = k.shared(f32, 2 * THREADS), k.var(u32, 0)
    with k.loop() as loop:
        loop.leave_if(i == 64)
        tile.store(k.tid + i, 1.0)
        out.store(k.tid, tile.load(k.tid + i))
        i += 1


@pytest.mark.parametrize("name", WRONG)
def test_accesses_that_may_meet(name):
    body, threads = WRONG[name]
    with pytest.raises(BuildError, match=r"no k\.sync\(\) between|end the body with k\.sync\(\)"):
        built(body, threads)


# ---- anything -------------------------------------------------------------------------------------------


CHANGES = (
    lambda at, half: at + 1, lambda at, half: at + 64, lambda at, half: at ^ 1, lambda at, half: at ^ 32,
    lambda at, half: at & 63, lambda at, half: at * 2, lambda at, half: at % 48, lambda at, half: at >> 1,
    lambda at, half: at + half, lambda at, half: at + half,
)  # fmt: skip


def index(k, rng: random.Random, half):
    """An index below 1024 that is made of the thread's and of what all share."""
    at = rng.choice((lambda: k.tid, lambda: k.tid, lambda: k.lane, lambda: k.warp, lambda: 127 - k.tid))()
    for _ in range(rng.randrange(3)):
        at = rng.choice(CHANGES)(at, half)
    return at


def condition(k, rng: random.Random, half):
    of, number = rng.choice((k.tid, k.tid, k.lane, k.tid & 7)), rng.choice((half, half, 0, 1, 32, 64))
    made = getattr(operator, rng.choice(("lt", "lt", "le", "gt", "ge", "eq", "ne")))(of, number)
    return made if rng.random() < 0.7 else made & (k.tid < half)


def drawn(number: int) -> Body:
    """One thread's update and another's read, in either order, once or in a loop."""

    def body(k, x, out, half):
        rng = random.Random(number)
        tile = k.shared(f32, 1024)
        for step in range(8):
            tile.store(k.tid + THREADS * step, 0.0)
        k.sync()

        def update():
            with k.when(condition(k, rng, half)):
                tile.reduce("add", index(k, rng, half), 1.0)

        def read():
            out.store(k.tid, tile.load(index(k, rng, half), where=condition(k, rng, half)))

        def both():
            for access in rng.choice(((update, read), (read, update))):
                access()

        if rng.random() < 0.5:
            both()
        else:
            for _ in k.range(2):
                both()
                if rng.random() < 0.7:
                    k.sync()

    return body


def test_what_is_accepted_never_races():
    """The emulator, which sees elements, finds no race in what the builder takes."""
    seed = fresh_seed()
    print(f"seed {seed}")
    accepted, refused = 0, []
    for number in range(seed, seed + 150):
        try:
            made = built(drawn(number))
        except BuildError as error:
            refused.append(str(error))
            continue
        accepted += 1
        for half in (0, 1, 5, 64, 127):
            x, out = (trueno.to(np.zeros(THREADS, np.float32), BACKEND) for _ in range(2))
            print(f"number {number}, half {half}")
            trueno_cuda.run(made, 1, [x, out], (half,), backend=BACKEND)
    assert accepted > 10 and len(refused) > 10
    assert all("k.sync()" in words for words in refused)
