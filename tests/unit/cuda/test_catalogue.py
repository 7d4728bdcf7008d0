"""The catalogue of kernels: each entry is built and run on the emulator, and what cannot be is said clearly."""

import subprocess
import sys

import numpy as np
import pytest
from trueno.errors import ParameterError
from trueno_cuda.catalogue import registry
from trueno_cuda.catalogue.entry import CatalogueEntry, Constant, Sample, Want, constants
from trueno_cuda.catalogue.registry import build, chosen, compare, find, module, read, run
from trueno_cuda.ptx import TARGETS, f32, kernel, ptr, u32
from unit.cuda.kernels.moves import random
from unit.cuda.ptx.assembler import run as ptxas
from unit.cuda.ptx.examples import mma_gemm

ENTRIES = registry.catalogue()
VARIANTS = [pytest.param(name, v, id=f"{name}-{i}") for name, e in ENTRIES.items() for i, v in enumerate(e.variants)]


def newest(entry, variant):
    """The newest architecture whose blocks may have the shared memory of a variant."""
    for arch in reversed(entry.arches):
        try:
            build(entry, arch, variant)
        except ParameterError as error:
            if "bytes of shared memory" not in str(error):
                raise
        else:
            return arch
    raise AssertionError(f"{entry.name} fits nowhere")


@pytest.mark.parametrize("name, variant", VARIANTS)
def test_a_sample_is_right(name, variant):
    seed = int(random().integers(1 << 32))
    print(f"--seed {seed}")
    done = run(find(name), newest(find(name), variant), variant, seed)
    assert done.good, "\n".join(map(str, [*done.reports, *done.results]))
    if isinstance(find(name).sample(np.random.default_rng(seed), **chosen(find(name), variant)), Sample):
        written = {p.name for p in done.kernels[0].params if p.written}
        assert {r.name for r in done.results} >= written, "a result is not compared"


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_it_is(name):
    entry = ENTRIES[name]
    assert entry.name.isidentifier() and entry.family.isidentifier() and entry.help
    assert entry.arches and set(entry.arches) <= set(TARGETS)
    assert all(c.help for c in entry.constants), "a constant has no help"
    for variant in entry.variants:
        chosen(entry, variant)
    assert {} in entry.variants, "the defaults are the first variant"
    one, two = (build(entry, entry.arches[0]) for _ in range(2))
    assert one and [k.text for k in one] == [k.text for k in two]


def test_it_needs_no_gpu_and_no_cupy():
    code = """
import sys
sys.modules["cupy"] = None
from trueno_cuda.catalogue import registry
assert registry.run(registry.find("outer")).good
assert not [m for m in sys.modules if m.startswith(("trueno_cuda.device.hardware", "cuda", "typer", "rich"))]
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# ------------------------------------------------------------------------------------- a kernel of its own


@kernel(threads=32)
def doubled(k, x: ptr(f32), y: ptr(f32), n: u32, *, TIMES: int, V: int = 1, WRONG: bool = False):
    """y = TIMES · x."""
    i = k.tid * V
    factor = TIMES + (1 if WRONG else 0)
    y.store(i, [e * float(factor) for e in x.load(i, vec=V, where=i < n)], where=i < n)


def _sample(rng, *, TIMES, V, WRONG):
    x = rng.standard_normal(20).astype("f4")
    wants = {"y": Want(TIMES * x.astype("f8"), 1e-6 * np.abs(x) * TIMES)}
    return Sample((1, 1, 1), {"x": x, "y": np.zeros(20, "f4"), "n": 20}, wants)


def entry(**options):
    made = constants(doubled, TIMES="the factor", V="elements an access", WRONG="whether it is")
    return CatalogueEntry("doubled", "tests", "doubles", doubled.build, _sample, made, **options)


def test_constants_come_from_the_signature():
    assert entry().constants == (
        Constant("TIMES", None, "the factor"),
        Constant("V", 1, "elements an access"),
        Constant("WRONG", False, "whether it is"),
    )


def test_running():
    done = run(entry(), "sm_80", {"TIMES": 3, "V": 4})
    assert done.good and done.kernels[0].arch == "sm_80" and done.kernels[0].name == "doubled_TIMES3_V4_WRONG0"
    (result,) = done.results
    assert (result.name, result.elements, result.exact, result.wrong) == ("y", 20, False, 0) and 0 <= result.error <= 1
    wrong = run(entry(), "sm_80", {"TIMES": 3, "WRONG": True})
    assert not wrong.good and wrong.results[0].wrong == 20 and wrong.results[0].error > 1


def test_a_finding_is_not_good():
    def reads_beyond(rng, **given):
        sample = _sample(rng, **given)
        return Sample(sample.grid, sample.operands | {"n": 32}, sample.wants)

    made = entry()
    done = run(
        CatalogueEntry("doubled", "tests", "doubles", made.build, reads_beyond, made.constants), constants={"TIMES": 2}
    )
    assert done.reports[0].findings and not done.good


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "doubled: TIMES has no default; give it with --set TIMES=VALUE"),
        ({"TIME": 2}, "doubled: no constant 'TIME'; did you mean \"TIMES\"?"),
        ({"TIMES": 2, "Z": 2}, "doubled: no constant 'Z'; it has TIMES, V, WRONG"),
        ({"TIMES": 2, "V": 3}, "doubled: .* a vector of 3 f32 is not 1, 2, 4"),
        ({"TIMES": 2.5}, "doubled: doubled: the constant TIMES is 2.5, and must be of type int"),
    ],
)
def test_constants_that_cannot_be(given, said):
    with pytest.raises(ParameterError, match=said):
        build(entry(), constants=given)


def test_an_architecture_that_it_is_not_for():
    with pytest.raises(ParameterError, match=r"doubled: it is not for sm_80; it runs on sm_90, sm_90a"):
        build(entry(arches=("sm_90", "sm_90a")), "sm_80", {"TIMES": 2})
    with pytest.raises(ParameterError, match=r'not for sm_91; did you mean "sm_90"[?] it runs on'):
        build(entry(), "sm_91", {"TIMES": 2})


def test_an_impossible_constant_is_no_traceback():
    with pytest.raises(
        ParameterError, match="transpose: a tile of 8 x 8 elements leaves some of 256 threads without one"
    ):
        build(find("transpose"), constants={"schedule": "elements", "R": 8, "C": 8})
    with pytest.raises(ParameterError, match="convolve2d: P=3 and Q=0: both are constants of the build, or both are 0"):
        build(find("convolve2d"), constants={"Q": 0})
    made = CatalogueEntry("odd", "tests", "fails", lambda arch, *, N: 1 // N, _sample, (Constant("N", 0),))
    with pytest.raises(ParameterError, match=r"odd: no kernel with N=0 \(ZeroDivisionError"):
        build(made)


def test_a_tile_that_a_type_has_not():
    with pytest.raises(ParameterError, match="matmul: float64 has naive, small, large; wide is of float32 alone"):
        build(find("matmul"), constants={"variant": "wide", "dtype": "float64"})


def test_schedules_of_row_programs():
    usual, said = find("softmax"), "flat256x4, held32x8, swept1024x4 or long256x4c32"
    assert usual.defaults["schedule"] == "auto" and build(usual, constants={"schedule": "auto"}) == build(usual)
    assert build(usual, constants={"schedule": "held"})[0].name == "softmax_held256x4_v4_f32"
    assert build(find("relu"), constants={"schedule": "flat128x2"})[0].name == "relu_flat128x2_v4_f32"
    with pytest.raises(ParameterError, match=f"softmax: schedule 'quick' is not known; write {said}"):
        build(usual, constants={"schedule": "quick"})
    for name, schedule, fits in (("softmax", "flat", "auto, held, swept or long"), ("relu", "held8", "auto or flat,")):
        with pytest.raises(ParameterError, match=f"{name}: schedule {schedule} does not fit; it must be {fits}"):
            build(find(name), constants={"schedule": schedule})


def test_reading_constants():
    e = find("transpose")
    assert read(e, "R", "32") == 32 and read(e, "guarded", "TRUE") is True and read(e, "guarded", "0") is False
    assert read(e, "schedule", "elements") == "elements" and read(entry(), "TIMES", "7") == 7
    with pytest.raises(ParameterError, match="transpose: R is 'many'; it must be a whole number, as 64"):
        read(e, "R", "many")
    with pytest.raises(ParameterError, match="transpose: guarded is 'maybe'; it must be true or false, as False"):
        read(e, "guarded", "maybe")
    with pytest.raises(ParameterError, match="transpose: itemsize is 3; it must be 4 or 8"):
        build(e, constants={"itemsize": 3})


def test_several_kernels_are_one_module():
    found = build(find("softmax"), "sm_80", {"schedule": "long"})
    large = mma_gemm.build("sm_80", STAGES=6), mma_gemm.build("sm_80", STAGES=5, BK=64)
    assert len(found) > 1 and all(k.dynamic_shared for k in large)
    text = module([*found, *large])
    for k in (*found, *large):
        assert k.text.partition(".visible")[2] in text
    good, log = ptxas(text, "sm_80")
    assert good, log
    assert module(found[:1]) == found[0].text


def test_an_unknown_kernel():
    with pytest.raises(ParameterError, match=r'no kernel is called "transpos"; did you mean "transpose"[?]'):
        find("transpos")
    with pytest.raises(ParameterError, match='no kernel is called "qqq"; `trueno ptx list` has them all'):
        find("qqq")


# ------------------------------------------------------------------------------------- comparing


def test_a_nan_is_right_only_where_one_is_wanted():
    want = np.array([1.0, np.nan, np.inf, 3.0])
    good = np.array([1, np.nan, np.inf, 3.05], "f4")
    assert compare("y", good, Want(want, 0.1)).good
    for at, value in ((0, np.nan), (1, 2.0), (2, -np.inf), (2, 9.0), (0, np.inf), (3, 3.2)):
        bad = good.copy()
        bad[at] = value
        result = compare("y", bad, Want(want, 0.1))
        assert (result.good, result.wrong, result.worst) == (False, 1, (at,))


def test_exact_means_to_the_bit():
    want = np.array([[0.0, 1.0]], "f4")
    assert compare("y", want.copy(), Want(want)).good
    result = compare("y", -want, Want(want))
    assert result.exact and (result.wrong, result.error) == (2, 2.0)
    with pytest.raises(ValueError, match=r"y is float32\(1, 2\), and the sample wants float64\(1, 2\)"):
        compare("y", want, Want(want.astype("f8")))
    with pytest.raises(ValueError, match="wants"):
        compare("y", want, Want(want[0]))


def test_entries_of_one_name_are_refused(monkeypatch):
    from trueno_cuda.kernels import outer

    monkeypatch.setattr(outer, "CATALOGUE", [*outer.CATALOGUE, *outer.CATALOGUE])
    with pytest.raises(ValueError, match="two entries of the catalogue are called outer"):
        registry.catalogue.__wrapped__()
