"""Kernels that may be started before the one that they follow has ended: they wait first, and read nothing stale."""

import re

import pytest
from trueno_cuda.catalogue import registry
from trueno_cuda.ptx import f32, kernel, ptr, u32

WAIT = "griddepcontrol.wait;"
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
            assert all(map(HARMLESS.match, lines[:at])), lines[:at]
            assert "ld.global.nc" not in made.text
