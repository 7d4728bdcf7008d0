"""The gates about batched kernels and their forms for one vector."""

from time import perf_counter
from typing import Any

import numpy as np

from trueno_cuda.catalogue import parity
from trueno_cuda.catalogue.parity import ALONG_Y, KernelParity
from trueno_cuda.catalogue.registry import ARCH, Watched

SIX = ("rms_norm", "quant_rows_q4_k", "quant_rows_q6_k", "residual_add", "rope", "swiglu")


def six_pairs_agree(m: Any) -> None:
    """Compare batched kernels with their forms for one vector: the texts, and the results of both on the emulator.

    rms_norm, the products in Q4_K and Q6_K, residual_add, rope and swiglu must be among the pairs. A launch of five
    or three vectors must give the bits of one launch per vector, on fresh random operands.
    """
    pairs = parity.pairs()
    missing = [name for name in SIX if name not in [pair.name for pair in pairs]]
    m.need(not missing, f"no batched form of {', '.join(missing)} is declared")
    start = perf_counter()
    violations = {pair.name: pair.violations() for pair in pairs}
    m.note(pairs=len(pairs), strategies={pair.name: pair.parity.strategy for pair in pairs})
    m.note(texts_ms=round((perf_counter() - start) * 1e3, 2))
    wrong = [f"{name}: {sentence}" for name, said in violations.items() for sentence in said]
    m.need(not wrong, "; ".join(wrong))
    device, numbers, differing = Watched(ARCH), 0, {}
    for pair in pairs:
        result = parity.compared(pair, device, np.random.default_rng())
        numbers += result.numbers
        if result.differing or not result.numbers:
            differing[pair.name] = result.differing
    findings = [str(f) for report in device.reports for f in report.findings]
    m.note(launches=len(device.reports), numbers_compared=numbers, differing=sum(differing.values()))
    m.need(not differing, f"batched and single results differ: {', '.join(differing)}")
    m.need(not findings, f"the emulator reports: {'; '.join(findings[:3])}")


def batched_q4_k(m: Any) -> None:
    """Read the batched product in Q4_K, for 2, 3, 5 and 8 vectors, and run the declared one.

    The number of vectors (m_dim) is the build's constant `columns`: as many dp4a for each vector as the kernel of one
    has, as many times its shared memory, and no %ctaid.y. A launch of three vectors gives the bits of three launches.
    """
    pair = _pair(m, "quant_rows_q4_k", "register_unroll")
    counts = {}
    for vectors in (1, 2, 3, 5, 8):
        (kernel,) = parity.registry.build(pair.entry, ARCH, {"columns": vectors})
        counts[vectors] = kernel.text.count("dp4a.")
        m.need(ALONG_Y not in kernel.text, f"{kernel.name} reads %ctaid.y")
    m.note(m_dim="the constant columns", dp4a_by_vectors={str(n): count for n, count in counts.items()}, ctaid_y=False)
    wrong = [n for n, count in counts.items() if not count or count != n * counts[1]]
    m.need(
        not wrong, f"the kernels of {', '.join(map(str, wrong))} vectors have other products than as many single ones"
    )
    _same(m, pair)


def batched_rms_norm(m: Any) -> None:
    """Read the batched rms_norm, and run it on five rows.

    Its rows lie along the grid's y: it reads %ctaid.y, which the kernel of one row does not, takes the same arguments,
    and launches (1, 5, 1) blocks. Its results have the bits of five launches of one row.
    """
    pair = _pair(m, "rms_norm", "grid_y")
    m.need(ALONG_Y in pair.batched.text, f"{pair.batched.name} does not read %ctaid.y")
    m.need(ALONG_Y not in pair.single.text, f"{pair.single.name} reads %ctaid.y")
    device = _same(m, pair)
    grids = [tuple(r.grid) for k, r in zip(device.kernels, device.reports, strict=True) if k is pair.batched]
    m.note(ctaid_y=True, grid=list(grids[0]) if grids else [])
    m.need(grids and all(y > 1 and x == 1 for x, y, _ in grids), f"the batched launches have the grids {grids}")


def _pair(m: Any, name: str, strategy: str) -> KernelParity:
    """The declared pair of a kernel; its texts must have nothing wrong."""
    pair = next((pair for pair in parity.pairs() if pair.name == name), None)
    m.need(pair is not None, f"no batched form of {name} is declared")
    assert pair is not None
    m.note(batched=pair.batched.name, single=pair.single.name, strategy=pair.parity.strategy)
    m.need(pair.parity.strategy == strategy, f"{name} is batched by {pair.parity.strategy}, not by {strategy}")
    wrong = pair.violations()
    m.need(not wrong, "; ".join(wrong))
    return pair


def _same(m: Any, pair: KernelParity) -> Watched:
    """Run both; the device, which has the reports."""
    device = Watched(ARCH)
    result = parity.compared(pair, device, np.random.default_rng())
    m.note(numbers_compared=result.numbers, differing=result.differing)
    m.need(result.numbers and not result.differing, f"{result.differing} of {result.numbers} numbers differ")
    return device


GATES = {"F-TRUENO-009": six_pairs_agree, "F-TRUENO-010": batched_q4_k, "F-TRUENO-011": batched_rms_norm}
