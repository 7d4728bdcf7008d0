"""wgpu decodes blocks as ggml does, bit for bit, and quantizes activations as ggml does, whatever the bytes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("wgpu", reason="needs wgpu")
from trueno.discovery.protocol import Call
from trueno.formats import FORMATS, WEIGHTS, decode
from trueno.formats.activations import encode_activations
from trueno.formats.decode import codes, scale
from trueno.formats.units import COLUMN, unit_shape
from trueno.ops import TABLE
from trueno_wgpu.device.array import Array
from trueno_wgpu.kernels import KERNELS
from trueno_wgpu.kernels.quant import blocks
from trueno_wgpu.kernels.quant.activations import quantized

GGML = np.load(Path(__file__).parents[2] / "golden/ggml/quant.npz", allow_pickle=False)
PARTNERS = ("q8_0", "q8_1", "q8_k")
LEAST = np.finfo("f4").smallest_normal


def dequantize(gpu: Any, name: str, w: np.ndarray) -> np.ndarray:
    call = Call(TABLE["dequantize"], np.dtype("f4"), "e", 2, (1,), (("format", name),))
    out = Array.of(gpu, np.full((len(w), FORMATS[name].row_elements(w.shape[1])), 7.5, "f4"))
    assert KERNELS["dequantize"](gpu, call)(Array.of(gpu, w), out) == 0
    return out.numpy()


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("data, values", [("q", "dq"), ("rb", "rbdq")])
def test_the_bits_are_ggmls(gpu: Any, name: str, data: str, values: str) -> None:
    """Among them scales that are subnormal in float16."""
    got = dequantize(gpu, name, GGML[f"{data}_{name.upper()}"])
    assert got.tobytes() == GGML[f"{values}_{name.upper()}"].tobytes()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows, count", [(1, 1), (3, 5), (2, 333)])
def test_any_bytes(gpu: Any, rng: np.random.Generator, name: str, rows: int, count: int) -> None:
    """Random bytes hold every kind of scale: subnormal, infinite, NaN.  The core's decoder is the witness."""
    f = FORMATS[name]
    w = rng.integers(0, 256, (rows, count * f.nbytes), dtype=np.uint8)
    w.reshape(-1, f.nbytes)[::7] = 0
    got, wanted = dequantize(gpu, name, w), decode(f, w)
    numbers = ~np.isnan(wanted)
    if name == "q8_k":  # the one scale in float32: a device may flush what is subnormal there
        numbers &= np.repeat(np.abs(scale(f, w.reshape(-1, f.nbytes))) >= LEAST, f.elements, axis=1).reshape(got.shape)
    assert np.array_equal(got[numbers].view("u4"), wanted[numbers].view("u4"))
    assert np.isnan(got[np.isnan(wanted)]).all()


def test_every_power_of_two_scales_every_value(gpu: Any) -> None:
    """mxfp4's scales reach below and above what float32 holds: its values are made by their bits."""
    f = FORMATS["mxfp4"]
    w = np.zeros((256, f.nbytes), np.uint8)
    w[:, f.fields["d"].offset] = np.arange(256)
    w[:, f.fields["qs"].offset :] = np.arange(16) * 17
    with np.errstate(over="ignore"):
        wanted = decode(f, w)
    assert dequantize(gpu, "mxfp4", w).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["q4_0", "q4_k", "q6_k", "mxfp4"])
def test_what_no_binding_holds_is_decoded_in_parts(
    gpu: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    f = FORMATS[name]
    w = rng.integers(0, 256, (11, 97 * f.nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        wanted = decode(f, w)
    monkeypatch.setattr(gpu, "limits", replace(gpu.limits, binding=300 * 4 * f.elements))
    assert np.array_equal(dequantize(gpu, name, w), wanted, equal_nan=True)


@pytest.mark.parametrize("name", ["q4_0", "q4_k"])
def test_what_does_not_fit_is_refused(gpu: Any, name: str) -> None:
    f = FORMATS[name]
    call = Call(TABLE["dequantize"], np.dtype("f4"), "e", 2, (1,), (("format", name),))
    run = KERNELS["dequantize"](gpu, call)
    w = Array.of(gpu, np.zeros((2, 2 * f.nbytes), np.uint8))
    for shape in (2, f.elements), (2, 2 * f.elements + 1), (1, 2 * f.elements), (4 * f.elements,):
        out = Array.of(gpu, np.full(shape, 3, "f4"))
        assert run(w, out) == -1
        assert np.all(out.numpy() == 3)
    assert run(Array.of(gpu, np.zeros((2, f.nbytes + 1), np.uint8)), Array.empty(gpu, (2, f.elements), "f4")) == -1


@pytest.mark.parametrize("name", FORMATS)
def test_every_column_is_read_where_the_table_says(name: str) -> None:
    """What `shape` asserts of planes is what a unit needs: the same bytes for each of its columns."""
    f, s = FORMATS[name], unit_shape(name)
    assert s.units * s.ways * COLUMN == f.elements
    for p in f.planes:
        for first in range(0, f.elements, s.run * s.ways):
            for r in range(0, s.run, COLUMN):
                e = [first + r + i * s.run for i in range(s.ways)]
                if p.run == 1:
                    places = {x // 32 for x in e}
                else:
                    places = {x // (p.run * p.ways) * p.run + x % p.run for x in e}
                assert len(places) == 1


def test_numbers_that_follow_no_formula_are_looked_for_in_halves() -> None:
    """The pieces of scales, as sums of bits of the group's number; else none."""
    assert blocks._linear([3, 3, 3, 3]) == "3u"
    assert blocks._linear([96, 97, 98, 99]) == "(g & 3u) + 96u"
    assert blocks._linear([0, 0, 4, 4]) == "(g & 2u) * 2u"
    assert blocks._linear([0, 1, 5, 6]) == "(g & 1u) + ((g & 2u) >> 1u) * 5u"
    assert blocks._linear([0, 1, 2, 4]) is None


def activations(gpu: Any, x: np.ndarray, partner: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    made = quantized(gpu, Array.of(gpu, x).buffer, x.size, partner)
    count = x.size // FORMATS[partner].elements
    found = gpu.read(made.codes, x.size), gpu.read(made.scales, 4 * count), gpu.read(made.sums, x.size // 4)
    return tuple(np.frombuffer(bytes(b), t) for b, t in zip(found, ("i1", "f4", "i4"), strict=True))  # type: ignore[return-value]


def check_activations(gpu: Any, partner: str, x: np.ndarray, rows: np.ndarray) -> None:
    """Against blocks that hold what x should become; where d is 0 or NaN, codes count for nothing."""
    f = FORMATS[partner]
    found, d, sums = activations(gpu, np.ascontiguousarray(x).ravel(), partner)
    wanted, known = scale(f, rows.reshape(-1, f.nbytes)).ravel(), codes(f, rows.reshape(-1, f.nbytes)).view(np.int8)
    normal = np.abs(wanted) >= LEAST
    assert np.array_equal(d[normal].view("u4"), wanted[normal].view("u4"))
    assert np.array_equal(np.isnan(d), np.isnan(wanted))
    assert not d[wanted == 0].any()
    assert np.array_equal(found.reshape(-1, f.elements)[normal], known[normal])
    assert np.array_equal(sums, found.reshape(-1, 16).sum(1, dtype="i4"))


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize("rows, expected", [("act", "act_cpu"), ("x", "x_cpu")])
def test_activations_are_ggmls(gpu: Any, partner: str, rows: str, expected: str) -> None:
    check_activations(gpu, partner, GGML[rows], GGML[f"{expected}_{partner.upper()}"])


@pytest.mark.parametrize("partner", PARTNERS)
@pytest.mark.parametrize("kind", ["normal", "ties", "every size", "mixed sizes"])
def test_activations_of_any_numbers(gpu: Any, rng: np.random.Generator, partner: str, kind: str) -> None:
    """A quotient that is off by one unit in the last place shows here."""
    x = rng.standard_normal((3001, 256)).astype("f4")
    if kind == "ties":
        x = rng.integers(-40, 41, x.shape).astype("f4")
    elif kind == "every size":
        x *= 2.0 ** rng.integers(-118, 120, (len(x), 1)).astype("f4")
    elif kind == "mixed sizes":
        x *= 2.0 ** rng.integers(-60, 60, x.shape).astype("f4")
    check_activations(gpu, partner, x, encode_activations(FORMATS[partner], x))


@pytest.mark.parametrize("partner", PARTNERS)
def test_a_block_without_numbers_has_no_scale(gpu: Any, rng: np.random.Generator, partner: str) -> None:
    x = rng.standard_normal((40, 256)).astype("f4")
    for row, bad in enumerate((np.nan, -np.nan, np.inf, -np.inf)):
        x[3 * row, 17 * row] = bad
    x[20] = 0
    x[21] = 1e-41
    _, d, _ = activations(gpu, x.ravel(), partner)
    size = FORMATS[partner].elements
    at = [(3 * row * 256 + 17 * row) // size for row in range(4)]
    assert np.flatnonzero(np.isnan(d)).tolist() == at
    assert not d[20 * 256 // size : 22 * 256 // size].any()


@pytest.mark.parametrize("partner", ["q8_0", "q8_1"])
def test_a_scale_too_large_for_float16_is_infinite(gpu: Any, partner: str) -> None:
    x = np.full(64, 127 * 65520.0, "f4")
    x[32:] *= np.float32(1 - 2**-20)
    assert activations(gpu, x, partner)[1].tolist() == [np.inf, 65504.0]
