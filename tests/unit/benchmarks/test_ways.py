"""Kernels folded into a persistent one compute on the emulator what they compute alone."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from seeds import fresh_seed
from trueno_cuda.catalogue import registry as catalogue
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.ptx import f32, kernel, ptr, tensor_map, u32
from trueno_cuda.ptx.syntax.parse import parse
from unit.benchmarks.folding import FOLDS, Noting, built, chain, emulated, shifted
from unit.cuda.ptx.assembler import assembled

from benchmarks.ways import fold, pieces


@pytest.fixture
def rng():
    print(f"seed {(seed := fresh_seed())}")
    return np.random.default_rng(seed)


@FOLDS
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_a_folded_kernel_has_a_section_for_each(threads, names, arch):
    kernels = [built(*name, arch) for name in dict.fromkeys(names)]
    assert [fold.refusal(k, threads) for k in kernels] == [""] * len(kernels)
    made = fold.folded(kernels, threads, 3)
    program = parse(made.text)
    (function,) = program.functions.values()
    labels = {item.name.split("#")[0] for item in function.body if not item.opcode}
    assert {label for label in labels if "section" in label} == {f"$section_{n}" for n in range(len(kernels))}
    assert function.directives == {"reqntid": (threads, 1, 1), "minnctapersm": (3,)}
    assert [v.name for v in program.variables] == ["dynamic"]
    assert made.text.count("ld.param") == len(made.params) == 4  # all others come from the table
    assert made.text.count("griddepcontrol") == 1 and made.early
    assert made.dynamic_shared == max(k.shared_bytes for k in kernels) and not made.static_shared
    assert made.param_bytes == 24 and made.arch == arch


@FOLDS
def test_ptxas_takes_it(threads, names):
    assert assembled(fold.folded([built(*name, "sm_90a") for name in dict.fromkeys(names)], threads, 3)).registers


@FOLDS
@pytest.mark.parametrize("blocks", [1, 4])
def test_it_computes_what_its_kernels_compute(threads, names, blocks):
    noted = Noting(Emulator("sm_90"))
    for name in names:
        noted.run(*name)
    got, report = emulated(noted, threads, blocks)
    assert not report.findings, report
    assert got == noted.held()


@pytest.mark.parametrize("blocks", [1, 3, 7])
def test_a_step_begins_when_the_one_before_has_ended(rng, blocks):
    noted = Noting(Emulator("sm_90"))
    launch, one, x, wanted = chain(noted, 7, rng)
    launch()
    assert noted.device.to_host(one).tobytes() == wanted(x).tobytes()
    got, report = emulated(noted, 128, blocks)
    assert not report.findings, report
    assert got == noted.held()
    assert len(fold.kinds(noted.steps)) == 3  # of a kernel that may read early, and may not, there are two sections


SLOW = """$section_2:
    {
    .reg .pred %slow;
    setp.ne.u32 %slow, %ctaid.x, 0;
    @%slow bra $on;
$stay:
    ld.relaxed.gpu.global.u32 %arrived, [%count];
    sub.u32 %arrived, %arrived, %target;
    setp.lt.s32 %slow, %arrived, 2;
    @%slow bra $stay;
$on:
    }
"""
"""In its third section, block 0 begins when the two others have ended."""


@pytest.mark.parametrize("waits", [True, False])
def test_a_step_waits_for_the_slowest_block(rng, waits):
    noted = Noting(Emulator("sm_90"))
    chain(noted, 7, rng)[0]()
    poll = "ld.acquire.gpu.global.u32 %seen, [%count];"

    def edit(text):
        assert poll in text and "$section_2:\n" in text
        return text.replace("$section_2:\n", SLOW).replace(poll, poll if waits else "mov.u32 %seen, %target;")

    got, report = emulated(noted, 128, 3, edit)
    assert report.completed and not report.findings, report
    assert (got == noted.held()) is waits


def test_blocks_that_are_not_there_end_in_a_trap(rng):
    noted = Noting(Emulator("sm_90"))
    chain(noted, 7, rng)[0]()

    def edit(text):
        text = text.replace(f"%polls, {pieces.SPINS};", "%polls, 50;")
        return text.replace("mov.u32 %everyone, %nctaid.x;", "mov.u32 %everyone, 8;")

    _, report = emulated(noted, 128, 7, edit)
    assert "trap" in str(report)


# ------------------------------------------------------------------------------------------ refusals


def plain(k, x: ptr(f32)):
    x.store(k.tid, x.load(k.tid, cache="nc"))


def mapped(k, tiles: tensor_map, x: ptr(f32)):
    x.store(k.tid, 0.0)


def deep(k, x: ptr(f32)):
    x.store(k.tid, k.nctaid_z.to(f32))


def on_both_ways(k, x: ptr(f32), n: u32):
    with k.when(k.ctaid < n):
        k.wait_previous()
    with k.otherwise():
        k.wait_previous()
    x.store(k.tid, 0.0)


def narrow(function, arch="sm_90", **how):
    return kernel(threads=128, **how)(function).build(arch)


REFUSED = {
    "other threads: 256 x 1 x 1, not 128": lambda: built("gelu"),
    "other threads: a number that the launch decides": lambda: replace(built("bring"), threads=None),
    "meet in a cluster": lambda: built("attention_decode_meet"),
    "more than 49152": lambda: replace(built("bring"), dynamic_shared=50000),
    "does not see": lambda: narrow(plain),
    "tensor maps": lambda: narrow(mapped, "sm_90", overlap=True),
    "third side": lambda: narrow(deep, overlap=True),
    "several places": lambda: narrow(on_both_ways, overlap="late"),
    "returns in 2 places": lambda: (lambda k: replace(k, text=k.text.replace("\n}", "\n    @%p1 ret;\n}")))(
        built("bring")
    ),
    "sm_80, whose kernels do not wait": lambda: built("bring", arch="sm_80"),
    "lines of Python": lambda: kernel(threads=128, overlap=True)(shifted).build("sm_90", loc=True),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_kernel_that_cannot_be_a_section_is_refused(reason):
    refused = REFUSED[reason]()
    assert reason in fold.refusal(refused, 128)
    if "more than" not in reason:
        with pytest.raises(ValueError, match=r"cannot be a section"):
            fold.folded([built("bring"), refused], 128, 3)


@pytest.mark.parametrize(
    "threads, reason, name, variant",
    [
        (96, "mbarriers", "quant_tiles", 5),
        (256, "other GPUs", "exchange", 0),
        (128, "cluster", "attention_decode_meet", 0),
    ],
)
def test_kernels_of_the_catalogue_that_are_refused(threads, reason, name, variant):
    entry = catalogue.find(name)
    *_, last = catalogue.build(entry, "sm_90", entry.variants[variant])
    assert reason in fold.refusal(last, threads, 1 << 20)


def test_one_kernel_is_for_one_architecture():
    with pytest.raises(ValueError, match="sm_90, sm_90a"):
        fold.folded([built("bring"), built("bring", arch="sm_90a")], 128, 3)


# ------------------------------------------------------------------------------------------ the table


def test_the_table_has_the_parameters_at_their_offsets():
    bring, scatter = built("bring"), built("kv_cache_scatter", 2)
    numbers = (1 << 40, *range(7))
    steps = [
        fold.Step(scatter, (5, 1, 1), tuple(range(len(scatter.params) - 3)), (1, 2, 3)),
        fold.Step(bring, (3, 1, 1), numbers, tuple((1 << 63) + i for i in range(9)), (1.5,)),
    ]
    rows, stride = fold.table([bring, scatter], steps)
    assert stride % 16 == 0 and len(rows) == 2 * stride
    assert struct.unpack_from("<4I3Q", rows) == (1, 5, 1, 5, 1, 2, 3)
    want = (0, 3, 1, 3, *((1 << 63) + i for i in range(9)), *numbers, 1.5)
    assert struct.unpack_from("<4I9QQ7If", rows, stride) == want


def test_the_table_refuses_a_grid_that_its_kernel_does_not_look_at():
    join, bring = built("attention_join"), built("bring")
    rows, _ = fold.table([join], [fold.Step(join, (2, 3, 1), (4, 5, 6), (1, 2, 3))])
    assert struct.unpack_from("<4I", rows) == (0, 2, 3, 6)
    with pytest.raises(ValueError, match="along x alone"):
        fold.table([bring], [fold.Step(bring, (2, 3, 1), (0,) * 8, (0,) * 9, (1.0,))])
