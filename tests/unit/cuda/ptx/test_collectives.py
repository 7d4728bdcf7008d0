"""Shuffles, votes and reductions, for every type, block size and architecture."""

import pytest
from trueno_cuda.ptx import TARGETS, Kernel, bf16, f16, f16x2, f32, f64, kernel, ptr, s32, s64, u32, u64
from unit.cuda.ptx.assembler import assembled


def built(function, arch: str = "sm_90", threads=128) -> Kernel:
    function.__annotations__ = {"x": ptr(f32)}
    result = kernel(threads=threads)(function).build(arch)
    assembled(result)
    return result


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_shuffles(arch: str) -> None:
    def shuffling(k, x):
        for kind in (f32, u32, s32, f16x2, f64, u64, s64, f16):
            v = k.lane.bits(f16x2) if kind is f16x2 else k.const(kind, 1)
            for how in ("down", "up", "xor", "idx"):
                assert k.shuffle(v, how, 1).type is kind
        k.shuffle(k.lane, "idx", k.lane ^ 5, width=8)

    text = built(shuffling, arch).text
    assert ", 1, 0, 0xFFFFFFFF;" in text  # up clamps at lane 0
    assert ", 6175, 0xFFFFFFFF;" in text  # (32 - 8) << 8 | 31


@pytest.mark.parametrize("arch", TARGETS)
def test_warp_reductions(arch: str) -> None:
    def reducing(k, x):
        k.warp_sum(x.load(k.tid))
        k.warp_max(k.lane)
        k.warp_min(k.lane.to(s32), width=8)
        k.warp_reduce(k.lane, "xor")
        k.warp_sum(k.lane.to(u64))
        k.match(k.lane)
        k.vote("ballot", k.lane > 3)
        k.vote("all", k.lane > 3)
        k.active_mask()

    text = built(reducing, arch).text
    assert ("redux.sync.max.u32" in text) == (arch != "sm_75")
    assert text.count("add.rn.f32") == 5


@pytest.mark.parametrize("threads", [32, 96, 128, 1024])
def test_block_reductions(threads: int) -> None:
    def reducing(k, x):
        total = k.block_sum(x.load(k.tid))
        highest = k.block_max(x.load(k.tid))
        value, index = k.block_argmax(x.load(k.tid), k.tid)
        for _ in k.range(3):
            k.block_min(x.load(k.tid))
        x.store(index, total + highest + value)

    text = built(reducing, threads=threads).text
    assert ("shared_1" in text) == (threads > 32)


def test_a_second_reduction_waits_for_the_readers_of_the_first() -> None:
    def once(k, x):
        k.block_sum(x.load(k.tid))

    def twice(k, x):
        k.block_sum(x.load(k.tid))
        k.block_sum(x.load(k.tid))

    def looped(k, x):
        for _ in k.range(3):
            k.block_sum(x.load(k.tid))

    assert [built(f).text.count("bar.sync 0;") for f in (once, twice, looped)] == [1, 3, 2]
    assert built(twice).static_shared == 16


def test_a_reduction_of_values_that_travel_together() -> None:
    def moments(k, x):
        y = x.load(k.tid)

        def merge(a, b):
            return a[0] + b[0], a[1] + b[1]

        total, squares = k.block_reduce((y, y * y), merge)
        x.store(k.tid, squares - total)

    text = built(moments).text
    assert text.count("shfl.sync") == 2 * (5 + 2)


def test_barriers_and_fences() -> None:
    def waiting(k, x):
        k.sync()
        k.sync(3, threads=64)
        k.arrive(4, threads=64)
        k.sync_warp()
        k.sync_warp(0xFF)
        k.sync_cluster()
        k.arrive_cluster()
        k.wait_cluster()
        for what in ("block", "gpu", "system", "cluster", "async", "mbarrier_init"):
            k.fence(what)
        k.wait_for_previous_grid()
        k.launch_next_grid()
        with k.when(k.elect()):
            x.store(0, 1.0)

    text = built(waiting).text
    for line in ("bar.sync 0;", "bar.sync 3, 64;", "bar.arrive 4, 64;", "bar.warp.sync 255;", "griddepcontrol.wait;"):
        assert line in text
    assert text.count("barrier.cluster.arrive;") == 1 and text.count("barrier.cluster.wait;") == 2
    assert text.count("barrier.cluster.arrive.relaxed;") == 1


def test_the_number_of_the_warp_in_other_blocks() -> None:
    def numbered(k, x):
        x.store(k.warp, 1.0)

    assert "mad.lo.u32" in built(numbered, threads=(32, 4)).text
    assert built(numbered, threads=(64, 2, 2)).text.count("mad.lo.u32") == 2


def test_halves_do_not_mix() -> None:
    def mixing(k, x):
        assert k.shuffle(x.load(0).to(bf16), "xor", 1).type is bf16

    built(mixing)
