"""Loads and stores: vectors, masks, hints, packs, and addresses that count elements."""

import pytest
from trueno_cuda.ptx import (
    BuildError,
    Kernel,
    bf16,
    f16,
    f16x2,
    f32,
    f64,
    kernel,
    ptr,
    s8,
    s8x4,
    s32,
    s64,
    u8,
    u8x4,
    u32,
    u64,
)
from unit.cuda.ptx.assembler import assembled


def built(function, element=f32, arch: str = "sm_90", threads=128) -> Kernel:
    """A kernel (k, x: ptr(element), n: u32) that ptxas accepts."""
    function.__annotations__ = {"x": ptr(element), "n": u32}
    result = kernel(threads=threads)(function).build(arch)
    assembled(result)
    return result


def test_indices_count_elements() -> None:
    def indexing(k, x, n):
        x.load(3)
        x.load(k.tid)
        x.load(n.to(s32))
        x.load(n.to(u64))
        x.load(n.to(s64))
        (x + 8).load(k.tid)
        (x + n).load(2)
        (x + n).load(-1)

    text = built(indexing, f64).text
    for line in (
        "[%global1+24];",
        "mad.wide.u32 %global2, %r2, 8, %global1;",
        "mad.wide.s32 %global3, %s1, 8, %global1;",
        "mad.lo.u64 %global4, %rd2, 8, %global1;",
        "mad.lo.s64 %global5, %sd1, 8, %global1;",
        "add.u64 %global6, %global1, 64;",
        "[%global8+16];",
        "[%global9+-8];",
    ):
        assert line in text


@pytest.mark.parametrize(
    "element, vec, opcode",
    [
        (f32, None, "ld.global.f32"),
        (f32, 1, "ld.global.f32"),
        (f32, 4, "ld.global.v4.f32"),
        (f64, 2, "ld.global.v2.f64"),
        (f16, 2, "ld.global.v2.b16"),
        (bf16, 4, "ld.global.v4.b16"),
        (bf16, 8, "ld.global.v4.b32"),
        (f16x2, 4, "ld.global.v4.b32"),
        (u8, 4, "ld.global.v4.u8"),
        (s8, None, "ld.global.s8"),
        (u8x4, 4, "ld.global.v4.b32"),
        (s8, 16, "ld.global.v4.b32"),
    ],
)
def test_vectors(element, vec, opcode) -> None:
    def copying(k, x, n):
        got = x.load(k.tid * 16, vec=vec)
        got = got if isinstance(got, list) else [got]
        assert len(got) == (vec or 1)
        assert {v.type for v in got} == {element.widened}
        if not (element is s8 and vec == 16):
            x.store(k.tid * 16 + 2048, got)

    result = built(copying, element)
    assert f"{opcode} " in result.text
    assert result.params[0].align == element.bytes * (vec or 1)
    assert result.params[0].read


def test_256_bit_vectors_where_there_are_some() -> None:
    def wide(k, x, n):
        x.store(k.tid * 8 + 1024, x.load(k.tid * 8, vec=8))

    assert "ld.global.v8.f32" in built(wide, arch="sm_100").text
    with pytest.raises(BuildError, match="at most 16 bytes"):
        built(wide, arch="sm_90")


def test_masked_lanes_read_zero_or_what_is_given() -> None:
    def masked(k, x, n):
        live = k.tid < n
        x.load(k.tid * 2, vec=2, where=live)
        x.load(k.tid, where=live, other=-1.0)
        x.load(k.tid, where=live, other=x.load(0))
        x.load(k.tid, where=None)
        x.load(k.tid, where=True)
        x.store(k.tid, 1.0, where=live)

    text = built(masked).text
    assert text.count("@%p1 ld.global") == 3
    assert text.count("@%p1 st.global.f32") == 1
    assert "mov.f32 %f1, 0f00000000;" in text
    assert "mov.f32 %f3, 0fBF800000;" in text


def test_masked_halves() -> None:
    def masked(k, x, n):
        x.store(k.tid * 8, x.load(k.tid * 8, vec=8, where=k.tid < n, other=1.0))
        x.store(k.tid * 8, x.load(k.tid * 8, vec=8, where=k.tid < n, other=x.load(0)))

    text = built(masked, bf16).text
    assert "0x3F803F80" in text
    assert "st.global.v4.b32" in text


def test_hints_orders_and_policies() -> None:
    def hinted(k, x, n):
        x.load(0, cache="nc no_allocate l2_128")
        x.load(0, cache="evict_last")
        x.load(0, policy=k.l2_policy("evict_first", 0.5))
        x.load(0, order="acquire", scope="gpu")
        x.load(0, order="volatile")
        x.store(0, 1.0, cache="cs")
        x.store(0, 1.0, order="release", scope="system")
        x.prefetch(k.tid)

    text = built(hinted).text
    for opcode in (
        "ld.global.nc.L1::no_allocate.L2::128B.f32",
        "ld.global.L1::evict_last.f32",
        "createpolicy.fractional.L2::evict_first.b64 %policy1, 0.5;",
        "ld.global.L2::cache_hint.f32",
        "ld.acquire.gpu.global.f32",
        "ld.volatile.global.f32",
        "st.global.cs.f32",
        "st.release.sys.global.f32",
        "prefetch.global.L2",
    ):
        assert opcode in text


def test_casts_keep_the_address_and_its_alignment() -> None:
    def quantized(k, x, n):
        block = x + k.ctaid * 144
        block.cast(f16).load(1)
        block.cast(u8x4).load(4, vec=4)
        with pytest.raises(BuildError, match="must start at a multiple of 4"):
            (x + k.ctaid * 20).cast(u8x4).load(0, vec=4)
        with pytest.raises(BuildError, match="its address is a multiple of 2 only, not of a u8x4"):
            (x + k.ctaid * 18).cast(u8x4)
        with pytest.raises(BuildError, match="cast to u8x4"):
            x.store(0, [n] * 8)

    result = built(quantized, u8)
    assert result.params[0].align == 16
    assert "ld.global.b16" in result.text


def test_shared_and_local_arrays() -> None:
    def arrays(k, x, n):
        tile, ring, mine = k.shared(f32, 16, 17), k.shared(f32, 64, stages=3), k.local(f32, 8)
        assert (len(tile), tile.bytes, ring.bytes) == (272, 1088, 768)
        tile.store((k.tid, 3), 1.0)
        k.sync()
        tile.load((2, k.tid))
        tile.load((1, 2))
        ring[k.ctaid % 3].store(k.tid, 1.0)
        ring[2].store(5, 1.0)
        mine.store(n % 8, x.load(0))
        x.store(0, mine.load(n % 8))

    result = built(arrays)
    for line in (
        ".shared .align 16 .b8 shared_1[1088];",
        ".shared .align 16 .b8 shared_2[768];",
        ".local .align 16 .b8 local_1[32];",
        "mov.u32 %shared1, shared_1;",
        "mov.u64 %local1, local_1;",
        "ld.shared.f32 %f1, [%shared4];",
        "[%shared1+76];",
    ):
        assert line in result.text, line
    assert result.static_shared == 1856


def test_promises_and_proofs_of_alignment() -> None:
    def aligned(k, x, n):
        x.load(k.multiple_of(n, 4), vec=4)
        x.load((k.tid << 2) + 8, vec=4)
        x.load(k.tid & 0xFFFFFFFC, vec=4)
        x.load(k.mad(k.tid, 4, k.ctaid * 64), vec=4)
        x.load((k.tid * 8) >> 1, vec=4)
        x.load(k.select(n > 3, k.tid * 4, 0), vec=4)
        x.load((k.tid * 4).to(u64) * n.to(u64), vec=4)
        for i in k.range(k.tid * 4, n, 512):
            x.load(i, vec=4)

    def unaligned(k, x, n):
        for i in k.range(k.tid * 4, n, 510):
            x.load(i, vec=4)

    built(aligned)
    with pytest.raises(BuildError, match="only known to be one of 2"):
        built(unaligned)


def test_a_pointer_loaded_from_memory() -> None:
    def table(k, x, n):
        matrix = k.as_global(x.load(k.ctaid), f32)
        matrix.store(k.tid * 4, [1.0] * 4)

    assert "cvta.to.global.u64" in built(table, u64).text


def test_memory_of_another_block() -> None:
    def remote(k, x, n):
        tile = k.shared(f32, 128)
        tile.store(k.tid, 1.0)
        k.sync_cluster()
        other = k.in_block(tile, k.cluster_rank ^ 1)
        x.store(k.tid, other.load(k.tid))
        other.reduce("add", 0, 1.0)

    text = built(remote).text
    assert "mapa.shared::cluster.u32 %remote1, %shared1, " in text
    assert "ld.shared::cluster.f32" in text


def test_s8_values_are_signed() -> None:
    def signed(k, x, n):
        assert x.load(0).type is s32
        k.shared(s8x4, 4)

    built(signed, s8)
