"""sample of wgpu against the chain of samplers written out token by token, and its arithmetic against mpmath."""

import itertools
import struct
from dataclasses import replace

import mpmath
import numpy as np
import pytest

pytest.importorskip("wgpu")
import trueno
from trueno.errors import KernelError
from trueno.judge.bound import judge
from trueno.judge.structured import structured_bound
from trueno.ops import TABLE
from trueno_wgpu.device.array import Array
from trueno_wgpu.device.shader import Shader
from trueno_wgpu.kernels.dispatches import run
from trueno_wgpu.kernels.sampling import draw, fixed
from trueno_wgpu.kernels.sampling import kernel as sampling
from unit.core.test_sample import chain
from unit.wgpu.products import floats, kernel

pytestmark = pytest.mark.usefixtures("chosen")


def compute(gpu, logits, r, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, shape=None, guarded=False):
    out = Array.of(gpu, np.full(np.shape(r) if shape is None else shape, -7))
    call = kernel(gpu, "sample", logits, r, guarded=guarded, top_k=top_k)
    r = np.asarray(r, np.float32)
    assert call(Array.of(gpu, logits), Array.of(gpu, r), temperature, top_p, min_p, out) == 0
    return out.numpy()


@pytest.mark.parametrize("n", [1, 5, 64, 300, 1500])
def test_against_the_chain(gpu, rng, n):
    filters = itertools.product((0.0, 0.3, 1.0, 2.0), (0, 3, 200), (1.0, 0.9, 0.2, 0.0), (0.0, 0.05, 1.0))
    for temperature, top_k, top_p, min_p in filters:
        logits, r = 3 * floats(rng, 4, n), rng.random(4).astype(np.float32)
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        want = [chain(row.tolist(), float(one), *given.values()) for row, one in zip(logits, r, strict=True)]
        np.testing.assert_array_equal(compute(gpu, logits, r, **given), want, err_msg=str(given))


def test_flat_logits_are_told_apart_by_position(gpu):
    r = ((np.arange(20) + 0.5) / 20 + 1e-6).astype(np.float32)
    for value in (1.0, -0.0, np.inf, -np.inf, -3e38):
        x = np.full((20, 2000), value, np.float32)
        np.testing.assert_array_equal(compute(gpu, x, r), np.arange(50, 2000, 100))
        np.testing.assert_array_equal(compute(gpu, x, r, top_p=0.5), np.arange(25, 1000, 50))
        np.testing.assert_array_equal(compute(gpu, x, r, min_p=0.5, temperature=9.0), np.arange(50, 2000, 100))
        np.testing.assert_array_equal(compute(gpu, x, r, top_k=200), np.arange(5, 200, 10))


def test_edges(gpu):
    x = np.array([[0.5, 2.0, 2.0, -np.inf, 1.0]], np.float32)
    ends = np.array([-3.0, np.nan, 0.0, 1.0, np.inf, -0.0, 1e-45, 1 - 2**-24], np.float32)
    np.testing.assert_array_equal(compute(gpu, np.repeat(x, 8, 0), ends), [1, 1, 1, 0, 0, 1, 1, 0])
    for value in (np.float32(np.nan), np.uint32(0xFF800001).view(np.float32)):
        nan = x.copy()
        nan[0, 3:] = value
        for temperature in (0.0, 1.0):
            assert compute(gpu, nan, [0.9], temperature=temperature, top_k=2, top_p=0.5) == 3
    inf = x.copy()
    inf[0, [0, 4]] = np.inf
    np.testing.assert_array_equal(compute(gpu, np.repeat(inf, 2, 0), [0.4, 0.6]), [0, 4])
    assert compute(gpu, x, [0.999], temperature=1e-300) == 2
    np.testing.assert_array_equal(compute(gpu, np.repeat(x, 2, 0), [0.3, 0.99], temperature=1e18), [2, 0])
    huge = np.array([[3e38, -3e38, 1e-45, -1e-45]], np.float32)
    np.testing.assert_array_equal(compute(gpu, np.repeat(huge, 3, 0), [0.0, 0.4, 0.99], temperature=1e39), [0, 2, 1])
    close = np.array([[1.0, 1 - 2**-24, 1 + 2**-23]], np.float32)
    np.testing.assert_array_equal(compute(gpu, np.repeat(close, 3, 0), [0.3, 0.6, 0.9]), [2, 0, 1])


def test_leading_axes_are_broadcast(gpu, rng):
    logits, r = floats(rng, 2, 1, 90), rng.random((3,)).astype(np.float32)
    for temperature in (0.0, 0.7):
        got = compute(gpu, logits, r, temperature=temperature, shape=(2, 3))
        want = [[chain(row[0].tolist(), float(one), temperature, 0, 1.0, 0.0) for one in r] for row in logits]
        np.testing.assert_array_equal(got, want)
    assert compute(gpu, logits[0, 0], np.float32(0.5)).shape == ()


@pytest.mark.parametrize("given", [(1.0, 0.9, 0.0, 0), (0.7, 1.0, 1e-4, 0), (1.3, 0.8, 0.01, 40)])
def test_a_whole_vocabulary(gpu, rng, given):
    """Runs of the histogram carry, and three digits of positions tell equal logits apart."""
    temperature, top_p, min_p, top_k = given
    logits = (np.round(8 * floats(rng, 2, 80_000)) / 4).astype(np.float32)
    r = rng.random(2).astype(np.float32)
    (allowed,) = structured_bound(
        TABLE["sample"], [logits, r], {"top_k": top_k}, np.float32, (temperature, top_p, min_p)
    )
    got = compute(gpu, logits, r, temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k)
    assert judge(got, allowed)


def test_greedy_rows_of_several_workgroups(gpu, rng):
    logits = floats(rng, 3, 30_000)
    logits[1, [29_999, 4096]] = 100.0
    np.testing.assert_array_equal(compute(gpu, logits, np.zeros(3), temperature=0.0), logits.argmax(1))


def test_rows_come_in_bands(gpu, rng):
    logits, r = floats(rng, 200, 64), rng.random(200).astype(np.float32)
    planned = sampling.dispatches((200, 64), (200,), (200,), 0, replace(gpu.limits, binding=16 << 10, groups=7))
    assert len(planned) > 2
    there = [Array.of(gpu, a) for a in (logits, r, fixed.tables().view(np.uint32))]
    out = Array.of(gpu, np.full(200, -7))
    assert run(gpu, planned, there, out, alpha=sampling.filters(1.0, 1.0, 0.0)) == 0
    np.testing.assert_array_equal(out.numpy(), compute(gpu, logits, r))
    with pytest.raises(KernelError, match="sample: rows of 5000000 logits need more loop trips"):
        sampling.dispatches((5_000_000,), (), (), 0, replace(gpu.limits, trips=60_000))


def test_refusals(gpu, rng):
    for x, r, token in (((2, 5), (3,), (3,)), ((2, 5), (2,), (3,)), ((2, 0), (2,), (2,)), ((), (), ())):
        out = Array.of(gpu, np.full(token, -7))
        call = kernel(gpu, "sample", np.zeros(x), np.zeros(r), top_k=0)
        assert call(*(Array.of(gpu, np.zeros(s, np.float32)) for s in (x, r)), 1.0, 1.0, 0.0, out) == -1


def test_only_the_token_is_downloaded(gpu, rng):
    logits = floats(rng, 2, 500)
    with trueno.Batch("wgpu") as b:
        x, r = b.upload(logits), b.upload(np.array([0.1, 0.5], np.float32))
        token = b.sample(b.mul(x, 2.0), r, top_k=20, temperature=0.8)
        b.execute()
        before = b.counts
        got = b.read(token)
        assert b.counts.bytes - before.bytes == 16
        want = [chain((2 * row).tolist(), one, 0.8, 20, 1.0, 0.0) for row, one in zip(logits, (0.1, 0.5), strict=True)]
        np.testing.assert_array_equal(got, want)
        b.update(r, np.array([0.9, 0.3], np.float32))
        b.execute()
        assert "general path" not in str(b)


WEIGHTS = """\
struct Sizes { count: u32, low: u32, high: u32, shift: i32, }
@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> x: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> tables: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec2<u32>>;
FUNCTIONS
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < sizes.count) {
        y[id.x] = weight(gap(x[id.x].x, x[id.x].y, vec2<u32>(sizes.low, sizes.high), sizes.shift));
    }
}
"""


@pytest.mark.parametrize("temperature", [1.0, 0.3, 1e-30, 7e20])
def test_weights_are_right_to_sixty_bits(gpu, rng, temperature):
    """2^63 · e^((v − most) / temperature), against mpmath."""
    high = np.concatenate([floats(rng, 300) * 20, floats(rng, 100) * np.float32(temperature), [0, 1, -1, 1e-44, 1e30]])
    low = high - np.abs(np.concatenate([floats(rng, 200), floats(rng, 205) * np.float32(20 * temperature)]))
    pairs = np.stack([high, low], -1).astype(np.float32)
    code = draw.shader().source
    functions = code[: code.index("fn fraction_of")]
    functions = functions[functions.index("const LN2") :]
    shader = Shader("weights", WEIGHTS.replace("FUNCTIONS", functions), (False, False, True))
    out = Array.empty(gpu, (len(pairs),), np.uint64)
    buffers = [Array.of(gpu, a).buffer for a in (pairs.view(np.uint32), fixed.tables().view(np.uint32))]
    gpu.run(shader, [*buffers, out.buffer], struct.pack("<3Ii", len(pairs), *fixed.factor(temperature)),
            (-(-len(pairs) // 64), 1, 1))  # fmt: skip
    with mpmath.workdps(50):
        for (most, value), got in zip(pairs.tolist(), out.numpy().tolist(), strict=True):
            want = mpmath.exp((mpmath.mpf(value) - mpmath.mpf(most)) / mpmath.mpf(temperature)) * 2**63
            assert abs(got - want) <= 16, (most, value, got, want)
