"""Kernels that may be started before the one that they follow has ended: they wait first, and read nothing stale."""

import re

import pytest
from trueno_cuda.catalogue import registry
from trueno_cuda.ptx import BuildError, f32, kernel, ptr, u32

WAIT, NEXT = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
HARMLESS = re.compile(r"(ld\.param|cvta|mov|shr|and|add|setp|\.reg|\.shared|\.local)\b")
"""What may stand before the wait: it reads parameters and registers, and goes nowhere else."""


def doubled(k, x: ptr(f32), out: ptr(f32), n: u32):
    i = k.ctaid * 64 + k.tid
    out.store(i, x.load(i, where=i < n, cache="nc no_allocate") * 2, where=i < n)


def body(text):
    """The instructions of a kernel, one a line."""
    lines = (line.split("//")[0].strip() for line in text[text.index("\n{") + 2 : text.rindex("}")].splitlines())
    return [line for line in lines if line]


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_older_architectures_have_no_such_thing(arch):
    early, usual = (kernel(threads=64, overlap=o)(doubled).build(arch) for o in (True, False))
    assert early.text == usual.text
    assert "ld.global.nc.L1::no_allocate" in usual.text


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100"])
def test_a_kernel_waits_first(arch):
    early, usual = (kernel(threads=64, overlap=o)(doubled).build(arch) for o in (True, False))
    assert "griddepcontrol" not in usual.text and ".nc" in usual.text
    lines = body(early.text)
    at = lines.index(WAIT)
    assert all(map(HARMLESS.match, lines[:at]))
    assert ".nc" not in early.text and "ld.global.L1::no_allocate" in early.text


@pytest.mark.parametrize("name", registry.catalogue())
def test_every_kernel_of_ours_waits_first(name):
    entry = registry.find(name)
    for arch in set(entry.arches) & {"sm_90", "sm_90a"}:
        for made in registry.build(entry, arch, entry.variants[0]):
            lines = body(made.text)
            at = lines.index(WAIT)
            if made.late:  # it copies what a launcher knows to be finished
                assert not any(re.match(r"(@\S+ )?(ld|st|red|atom)\.global", line) for line in lines[:at])
            else:
                assert all(map(HARMLESS.match, lines[:at])), lines[:at]
            assert NEXT not in lines[:at]
            assert "ld.global.nc" not in made.text


def scaled(k, x: ptr(f32), w: ptr(f32), out: ptr(f32), n: u32):
    """Reads w before it waits, and x after."""
    i = k.ctaid * 64 + k.tid
    weight = w.load(i, where=i < n, cache="nc")
    k.wait_previous()
    out.store(i, x.load(i, where=i < n) * weight, where=i < n)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_kernel_may_say_where_it_waits(arch):
    made = kernel(threads=64, overlap="late")(scaled).build(arch)
    new = arch == "sm_90"
    assert (made.late, made.early, made.text.count(WAIT)) == (new, False, int(new))
    assert ("ld.global.nc" in made.text) is not new
    if new:
        lines = body(made.text)
        assert next(i for i, line in enumerate(lines) if "ld.global" in line) < lines.index(WAIT)


def test_only_a_launcher_that_knows_starts_a_late_kernel_early():
    made = kernel(threads=64, overlap="late")(scaled).build("sm_90")
    assert made.behind().early and made.behind().late and made.behind().text == made.text
    older = kernel(threads=64, overlap="late")(scaled).build("sm_80")
    assert not older.behind().early


def never(k, x: ptr(f32), n: u32):
    x.load(k.tid, where=k.tid < n)


def twice(k, x: ptr(f32), n: u32):
    k.wait_previous()
    k.wait_previous()


def in_a_branch(k, x: ptr(f32), n: u32):
    with k.when(k.tid < n):
        k.wait_previous()


def in_a_loop(k, x: ptr(f32), n: u32):
    for _ in k.range(n):
        k.wait_previous()


def after_a_store(k, x: ptr(f32), n: u32):
    x.store(k.tid, 0.0)
    k.wait_previous()


def after_an_atomic(k, x: ptr(f32), n: u32):
    with k.when(k.tid < n):
        x.reduce("add", 0, 1.0)
    k.wait_previous()


def on_both_ways(k, x: ptr(f32), n: u32):
    with k.when(k.ctaid < n):
        k.wait_previous()
    with k.otherwise():
        k.wait_previous()
    x.store(k.tid, 0.0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_path_waits_once_before_it_writes(arch):
    late = kernel(threads=64, overlap="late")
    for function, message in (
        (never, "no k.wait_previous"), (twice, "already"), (in_a_branch, "no k.wait_previous"), (in_a_loop, "a loop"),
        (after_a_store, "x is written before"), (after_an_atomic, "x is written before"),
    ):  # fmt: skip
        with pytest.raises(BuildError, match=message):
            late(function).build(arch)
    late(on_both_ways).build(arch)
    with pytest.raises(BuildError, match='overlap="late"'):
        kernel(threads=64, overlap=True)(twice).build(arch)
    with pytest.raises(BuildError, match="overlap="):
        kernel(threads=64, overlap="soon")(never)
