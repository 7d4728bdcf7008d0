"""The selector's choice where there is a GPU, by speeds as real machines have them: nothing is timed here."""

import numpy as np
import pytest
import trueno
from trueno.calibrate import measure
from trueno.discovery.protocol import Call, Rates
from trueno.ops import TABLE
from trueno.select import calibration, cost, policy
from trueno.select.decision import Request

F4 = np.dtype(np.float32)
MACHINES = {
    "a desktop, pageable memory": (8e9, 2.5e10, 2e11),
    "a workstation, PCIe 4": (2.5e10, 6e10, 1e12),
    "a server, PCIe 5": (5e10, 2e11, 3e12),
}
"""Bytes a second of the link and of the CPU's memory, and the CPU's flops in a product."""
GPU = (5e-6, 4e13, 4e12, 2e-5)
"""Launch, flops, bytes, and seconds an array on the link: an H200's, as its plugin declares them."""


@pytest.fixture(params=MACHINES)
def machine(request, fake):
    """The fake device is as fast as a GPU; scalar and the reference are a CPU that has been measured."""
    link, memory, flops = MACHINES[request.param]
    kinds = {cost.op_class(op) for op in TABLE.values()}
    rows = []
    for name, slower in (("scalar", 1.0), ("reference", 5.0)):
        for kind in kinds:
            of = flops if kind == "matmul" else 1e11
            speed = Rates(1e-6, of / slower, memory / slower)
            rows += [calibration.Row(name, kind, "float32", band, speed, 3, 0.0, "2026-11-22") for band in cost.BANDS]
    calibration.hold(rows)
    fake.control.rates = Rates(*GPU, link)
    yield
    calibration.forget()


def decided(name, size, residency="host"):
    op = TABLE[name]
    shapes = measure.shapes(op, size)
    sizes = tuple(int(np.prod(s)).bit_length() for s in (shapes if op.structured else shapes[:1]))
    static = tuple((p.name, p.typical) for p in op.static)
    call = Call(op, F4, op.layout, len(shapes[0]), sizes, static, residency=residency)
    return policy.decide(call, Request(automatic=True))


def test_small_host_arrays_never_go_there(machine):
    for op in TABLE.values():
        if not op.quantized:
            for size in (1, 100, 10_000, 50_000):
                decision = decided(op.name, size)
                assert decision.chosen != "fake"
                assert {c.name: c.code for c in decision.candidates}["fake"] == "too_small", (op.name, size)


@pytest.mark.parametrize("name", ["add", "relu", "sum", "rms_norm", "transpose", "matvec"])
def test_what_reads_its_operands_once_stays_at_home(machine, name):
    for size in (1 << 18, 1 << 20, 1 << 24):
        assert decided(name, size).chosen == "scalar", size


def test_large_products_go_there(machine):
    assert decided("matmul", 400**2).chosen == "scalar"
    assert decided("matmul", 2048**2).chosen == "fake"
    assert decided("matmul", 4096**2).chosen == "fake"


@pytest.mark.parametrize("name", ["add", "sum", "softmax", "matmul"])
def test_arrays_that_live_there_never_leave(machine, name):
    for size in (16, 1 << 12, 1 << 20, 1 << 24):
        decision = decided(name, size, residency="fake")
        assert decision.chosen == "fake" and decision.by == "resident"


def test_a_link_as_fast_as_memory_brings_even_additions_there(machine, fake):
    """What keeps them on the host is the link's speed and no rule."""
    fake.control.rates = Rates(*GPU, 4e12)
    assert decided("add", 1 << 24).chosen == "fake"


def test_a_link_is_measured_with_memory_that_was_written(fake, monkeypatch):
    """Pages of zeros are all one page, which a cache holds: the link would seem faster than it is."""
    backend = trueno.discovery.registry.load("fake")
    sent = []
    real = backend.to_device
    monkeypatch.setattr(backend, "to_device", lambda x: sent.append(bool(np.all(x))) or real(x))
    measure._links.pop(backend, None)
    seconds, rate = measure.link("fake")
    assert seconds >= 0 and rate > 0 and len(sent) > 1 and all(sent)
    measure._links.pop(backend, None)
