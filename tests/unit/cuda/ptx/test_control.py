"""Loops and branches: their text, what is uniform in them, and that correct kernels are not refused."""

import pytest
from trueno_cuda.ptx import TARGETS, f32, kernel, ptr, s32, u32, u64
from unit.cuda.ptx.assembler import assembled


def body_of(function, arch: str = "sm_90", threads=128) -> list[str]:
    """Instructions of a kernel (k, x: ptr(f32), n: u32) that ptxas accepts, without those at the top."""
    function.__annotations__ = {"x": ptr(f32), "n": u32}
    built = kernel(threads=threads)(function).build(arch)
    assembled(built)
    lines = [line.strip() for line in built.text.split("{\n", 1)[1].splitlines()]
    return [line for line in lines if line and not line.startswith((".reg", ".shared", "ld.param", "cvta", "}", "ret"))]


def test_a_loop_with_known_bounds_needs_no_test_before() -> None:
    def counted(k, x, n):
        for i in k.range(0, 10, 2):
            x.store(i, 1.0)

    assert body_of(counted) == [
        "mov.u32 %r2, 0;",
        "$for_1:",
        "mad.wide.u32 %global2, %r2, 4, %global1;",
        "st.global.f32 [%global2], 0f3F800000;",
        "add.u32 %r2, %r2, 2;",
        "setp.lt.u32 %p1, %r2, 10;",
        "@%p1 bra $for_1;",
    ]


def test_a_loop_with_unknown_bounds_may_run_never() -> None:
    def counted(k, x, n):
        for i in k.range(n):
            x.store(i, 1.0)

    lines = body_of(counted)
    assert lines[1:4] == ["setp.ge.u32 %p1, %r2, %r1;", "@%p1 bra $for_1_end;", "$for_1:"]
    assert lines[-1] == "$for_1_end:"


def test_loops_of_all_kinds_are_accepted() -> None:
    def loops(k, x, n):
        for i in k.range(k.ctaid * k.threads + k.tid, n, k.nctaid * k.threads):
            x.store(i, 1.0)
        for i in k.range(10, 0, -1):
            assert i.type is s32  # counting down passes zero
            x.store(i, 1.0)
        for i in k.range(-4, n.to(s32)):
            x.store(i, 1.0)
        for i in k.range(n.to(u64)):
            x.store(i, 1.0)
        for i in k.range(4, unroll=False):
            for j in k.range(i):
                x.store(j, 1.0)
        for _ in k.range(5, 5):
            raise AssertionError("never runs")

    assert '.pragma "nounroll";' in body_of(loops)


@pytest.mark.parametrize("count", [4, 7, 10])
def test_unrolling_writes_the_body_so_often(count: int) -> None:
    times = []

    def unrolled(k, x, n):
        for i in k.range(count, unroll=4):
            times.append(i)
            x.store(i, 1.0)

    lines = body_of(unrolled)
    assert len(times) == 4 + count % 4
    assert sum(line.startswith("st.global") for line in lines) == len(times)
    assert sum("bra $for" in line for line in lines) == 1
    back = next(line for line in lines if line.startswith("setp"))
    assert back.endswith(f" {count - count % 4};")


def test_branches() -> None:
    def branching(k, x, n):
        y = k.var(f32, 0.0)
        with k.when(k.tid < n):
            y.set(1.0)
            with k.when(k.tid == 3):
                y += 2.0
            with k.otherwise():
                y -= 2.0
        with k.otherwise():
            y.set(3.0)
        x.store(k.tid, y)

    lines = body_of(branching)
    assert [line for line in lines if "$" in line] == [
        "@!%p1 bra $when_1_end;",
        "@!%p2 bra $when_2_end;",
        "bra $when_2_done;",
        "$when_2_end:",
        "$when_2_done:",
        "bra $when_1_done;",
        "$when_1_end:",
        "$when_1_done:",
    ]


def test_a_loop_that_is_left_in_the_middle() -> None:
    def searching(k, x, n):
        i = k.var(u32, 0)
        with k.loop() as loop:
            loop.leave_if(i >= n)
            y = x.load(i)
            i += 1
            loop.leave_if(y > 1.0)
            with k.when(y < 0.0):
                loop.leave_if(i == 7)
        x.store(0, i.to(f32))

    lines = body_of(searching)
    assert sum("bra $loop_1_end" in line for line in lines) == 3
    assert lines.count("bra $loop_1;") == 1


def test_barriers_where_all_threads_arrive_are_accepted() -> None:
    def uniform(k, x, n):
        with k.when(n > 3):
            k.sync()
        with k.when(k.ctaid == 0):
            k.sync()
        for i in k.range(n):
            k.sync()
            with k.when(i == 2):
                k.sync()
        total = k.block_sum(x.load(k.tid))
        with k.when(total > 0.0):
            k.sync()
        turns = k.var(u32, 0)
        with k.loop() as loop:
            loop.leave_if(turns >= n)
            k.sync()
            turns += 1
        with k.when(x.load(0) > 0.0):
            k.sync()

    body_of(uniform)


def test_collectives_where_the_warp_arrives_are_accepted() -> None:
    def by_warps(k, x, n):
        y = x.load(k.tid)
        for condition in (k.warp == 0, k.tid >> 5 == 1, k.tid // 64 == 0, k.vote("any", y > 0.0)):
            with k.when(condition):
                k.warp_sum(y)
                k.sync_warp()
        with k.when(k.warp < 2):
            k.sync(1, threads=64)
        with k.when(k.lane == 0):
            k.shuffle(y, "idx", 0, mask=1)  # the author says who takes part

    body_of(by_warps)


def test_correct_use_of_shared_memory_is_accepted() -> None:
    def tiled(k, x, n):
        tile, ring, mine = k.shared(f32, 128), k.shared(f32, 128, stages=2), k.shared(f32, 128, per="warp")
        for i in k.range(n):
            tile.store(k.tid, x.load(i))
            k.sync()
            y = tile.load(127 - k.tid)
            k.sync()
            x.store(i, y)
        ring[0].store(k.tid, 1.0)
        k.sync()
        ring[0].load(127 - k.tid)
        ring[1].store(k.tid, 1.0)  # the other stage
        for i in k.range(n):
            now, after = i % 2, (i + 1) % 2  # chosen on the GPU: the builder cannot see, the author must
            ring[now].load(127 - k.tid)
            ring[after].store(k.tid, 2.0)
            k.sync()
        mine.store(k.tid, 1.0)
        k.sync_warp()
        mine.load(k.tid ^ 1)
        k.sync_warp()
        mine.store(k.tid, 2.0)
        with k.when(n > 3):
            tile.store(k.tid, 1.0)
            k.sync()
            tile.load(0)
            k.sync()
        with k.otherwise():
            tile.store(k.tid, 2.0)
        k.sync()
        tile.load(0)

    body_of(tiled)


@pytest.mark.parametrize("arch", TARGETS)
def test_predicates(arch: str) -> None:
    def logic(k, x, n):
        a, b = k.tid < n, n > 3
        flag = k.var(a)
        flag |= b
        flag.set(~flag & (a ^ b))
        with k.when(flag):
            x.store(k.tid, a.to(u32).to(f32))

    body_of(logic, arch)
