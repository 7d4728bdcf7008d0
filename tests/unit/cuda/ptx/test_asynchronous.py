"""cp.async, mbarriers, bulk copies and tensor maps."""

import re

import numpy as np
import pytest
from trueno_cuda.ptx import TARGETS, bf16, f32, kernel, ptr, s32, tensor_map, u8, u16, u32
from trueno_cuda.ptx.emulate import load
from unit.cuda.ptx.assembler import assembled


@pytest.mark.parametrize("arch", [t for t in TARGETS if t != "sm_75"])
def test_cp_async(arch: str) -> None:
    @kernel(threads=128)
    def copying(k, x: ptr(f32), n: u32):
        tile, other = k.shared(f32, 512), k.shared(f32, 512)
        k.copy_async(tile, k.tid * 4, x, k.tid * 4, 4)
        k.async_commit()
        k.copy_async(other, k.tid * 2, x, k.tid * 2, 2, where=k.tid < n)
        k.async_commit()
        k.async_wait(1)
        k.sync()
        tile.load(511 - k.tid)
        k.async_wait(0)
        k.sync()
        other.load(511 - k.tid)

    built = copying.build(arch)
    assembled(built)
    assert "cp.async.cg.shared.global [%shared3], [%global2], 16;" in built.text
    taken = re.search(r"selp\.u32 (%r\d+), 8, 0, %p1;", built.text)
    assert taken is not None
    assert f"cp.async.ca.shared.global [%shared4], [%global3], 8, {taken[1]};" in built.text
    assert built.version == {"sm_80": "7.0", "sm_86": "7.1"}.get(arch, built.version)


@pytest.mark.parametrize("arch", [t for t in TARGETS if t != "sm_75"])
def test_mbarrier_counts_cp_async(arch: str) -> None:
    @kernel(threads=128)
    def counting(k, x: ptr(f32)):
        tile, full = k.shared(f32, 512), k.mbarrier(2)
        with k.when(k.tid == 0):
            full.init(128)
            full.init(128, 1)
        k.sync()
        k.copy_async(tile, k.tid * 4, x, k.tid * 4, 4)
        full.arrive_after_copies()
        full.wait(0)
        x.store(k.tid, tile.load(511 - k.tid))
        full.arrive(1, where=k.tid < 64)

    built = counting.build(arch)
    assembled(built)
    test = "try_wait" if TARGETS[arch].number >= 90 else "test_wait"
    assert f"mbarrier.{test}.parity.shared.b64" in built.text


def test_bulk_copies() -> None:
    @kernel(threads=128, cluster=2)
    def bulk(k, x: ptr(bf16), y: ptr(f32)):
        tile, sums, full = k.shared(bf16, 1024), k.shared(f32, 256), k.mbarrier()
        first = k.tid == 0
        with k.when(first):
            full.init(1)
            k.fence("mbarrier_init")
        k.sync_cluster()
        with k.when(first):
            full.arrive_expecting(tile.bytes)
            k.copy_bulk(tile, 0, x, k.ctaid * 1024, 1024, full, policy=k.l2_policy("evict_last"))
        full.wait(0)
        sums.store(k.tid, tile.load(k.tid).to(f32))
        k.fence("async")
        k.sync()
        with k.when(first):
            k.store_bulk(y, k.ctaid * 256, sums, 0, 256)
            k.store_bulk(y, 0, sums, 0, 256, reduce="add")
            k.bulk_commit()
            k.bulk_wait(0)
            full.arrive_expecting(tile.bytes)
            k.copy_bulk(tile, 0, x, 0, 1024, full, blocks=k.const(u16, 3))
            full.arrive_in(k.cluster_rank ^ 1)
            k.bulk_wait(0, read=False)

    built = bulk.build("sm_90a")  # on sm_90 ptxas advises against multicast
    assembled(built)
    assert built.version == "8.0"
    assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint" in built.text
    assert ".multicast::cluster [" in built.text
    assert "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32" in built.text
    assert [(p.name, p.read, p.written, p.align) for p in built.params] == [
        ("x", True, False, 16),
        ("y", False, True, 16),
    ]


def test_tensor_maps() -> None:
    @kernel(threads=128)
    def boxes(k, source: tensor_map, target: tensor_map):
        tile, full = k.shared(bf16, 64, 64, align=1024), k.mbarrier()
        with k.when(k.tid == 0):
            k.prefetch_map(source)
            full.init(1)
            k.fence("mbarrier_init")
        k.sync()
        with k.when(k.tid == 0):
            full.arrive_expecting(tile.bytes)
            row = k.ctaid * 64
            for at in ([row.to(s32)], [0, row.to(s32)], [0, 0, row.to(s32)]):
                k.copy_tensor(tile, 0, source, at, full)
        full.wait(0)
        k.fence("async")
        k.sync()
        with k.when(k.tid == 0):
            k.store_tensor(target, [0, 64], tile, 0)
            k.bulk_commit()
            k.bulk_wait(0)

    built = boxes.build("sm_90")
    assembled(built)
    for part in (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%shared1], [%map1, {0, %s",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map2, {0, 64}], [%shared1];",
        ".param .align 64 .b8 arg_source[128]",
        "cvta.param.u64 %map1, %rd1;",
    ):
        assert part in built.text, part


def test_a_bulk_copy_of_a_length_that_the_gpu_knows() -> None:
    @kernel(threads=32)
    def some(k, x: ptr(u8), y: ptr(u8), chunks: u32):
        tile, full = k.shared(u8, 528), k.mbarrier()
        with k.when(k.tid == 0):
            full.init(1)
            k.fence("mbarrier_init")
        k.sync()
        with k.when(k.tid == 0):
            full.arrive_expecting(chunks * 16)
            k.copy_bulk(tile, 16, x, 0, chunks * 16, full)
        full.wait(0)
        with k.when(k.tid < chunks):
            y.cast(u32).store(k.tid * 4, tile.cast(u32).load(k.tid * 4 + 4, vec=4))

    built = some.build("sm_90")
    assembled(built)
    x, y = np.arange(512).astype(np.uint8), np.zeros(512, np.uint8)
    report = load(built.text).launch("some", 1, 32, [x, y, 7])
    assert not report.findings and np.array_equal(y[:112], x[:112]) and not y[112:].any()
