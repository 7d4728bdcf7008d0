"""The judge of LZ4: a block is right if the format's own library decodes it to its page.

Which matches a block has is free, so blocks have no expected bytes.  Whether it keeps the rules for its end says
`trueno.formats.lz4.fault`.  What a decoder and `lz4_pack` write is determined byte for byte.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from trueno.formats.lz4 import decoded, encoded, fault
from trueno.judge.bound import Verdict
from trueno.judge.interval import Array
from trueno.ops.op import TABLE

HALVED = 2
"""A page may be raw only if the library's block for it is not that many times smaller."""


def _compressed(operands: Sequence[Array], results: Sequence[Array], _: np.dtype[Any]) -> Verdict:
    """Blocks that decode to their pages, zeros behind them, and raw pages where no block could be expected."""
    (x,), (blocks, sizes) = operands, results
    n, p = x.shape
    for i, (page, block, size) in enumerate(zip(x, blocks, sizes.tolist(), strict=True)):
        if size != -p and not 0 < size < p:
            return _wrong(
                results, (i,), size, -p, f"sizes[{i}] is {size}, neither -{p} (raw) nor a block of 1 to {p - 1} bytes"
            )
        behind = np.flatnonzero(block[abs(size) :])
        if behind.size:
            at = abs(size) + int(behind[0])
            return _wrong(results, (i, at), int(block[at]), 0, f"blocks[{i}, {at}] is behind its block of {size} bytes")
        if size < 0:
            if not np.array_equal(block, page):
                return _wrong(results, (i,), size, -p, f"page {i} is raw, and its bytes are not those of x")
            if HALVED * len(best := encoded(page.tobytes())) <= p:
                return _wrong(
                    results,
                    (i,),
                    size,
                    len(best),
                    f"page {i} of {p} bytes is raw, and the library's block has {len(best)}",
                )
            continue
        raw = block[:size].tobytes()
        if (at := fault(raw, p)) >= 0:
            return _wrong(
                results, (i, at), size, 0, f"the sequence at byte {at} of block {i} breaks a rule of the format"
            )
        if decoded(raw, p) != page.tobytes():
            return _wrong(results, (i,), size, 0, f"block {i} does not decode to its page")
    return Verdict(True, 0.0, 0.0, x.size + n)


def _exact(op: str, operands: Sequence[Array], results: Sequence[Array], _: np.dtype[Any]) -> Verdict:
    """Every byte as the op's body gives it."""
    static = {"page": results[0].shape[1]} if op == "lz4_decompress" else {}
    wanted = TABLE[op].body(*operands, **static)
    for spec, got, want in list(zip(TABLE[op].signature.outputs, results, wanted, strict=True))[::-1]:
        different = np.argwhere(got != want)
        if len(different):
            at = tuple(map(int, different[0]))
            return _wrong(results, at, int(got[at]), int(want[at]), f"{spec.name}{list(at)}", len(different))
    return Verdict(True, 0.0, 0.0, sum(r.size for r in results))


def _wrong(results: Sequence[Array], at: tuple[int, ...], got: int, want: int, why: str, bad: int = 1) -> Verdict:
    size = sum(r.size for r in results)
    return Verdict(False, 2.0, 0.0, size, bad, at, float(got), float(want), float(want), float(want), why)


PROPERTIES: dict[str, Callable[..., Verdict]] = {
    "lz4_compress": _compressed,
    "lz4_decompress": partial(_exact, "lz4_decompress"),
    "lz4_pack": partial(_exact, "lz4_pack"),
}
