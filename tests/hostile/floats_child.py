"""Bits of some calls under a changed environment, as JSON.

`python -m tests.hostile.floats_child BACKEND SEED MOMENT MODE`

MOMENT: `never`, `import` (before Trueno is), `first` (before the first call), `later` (after some calls),
`between` (each second call), `thread` (in a thread of the caller's alone).
"""

import hashlib
import json
import sys
import threading
from typing import Any

import numpy as np

from . import environments

FEW, REPEATS = 5, 3


def _operands(op: Any, rng: np.random.Generator, long: bool) -> tuple[list[Any], dict[str, Any]]:
    """Random bits, none of them NaN or Inf, and subnormals; integers alone, so that no rounding takes part."""
    from trueno.formats import lz4_samples
    from trueno.formats.samples import random_rows
    from trueno.testing.cases import keywords

    given = keywords(op)[int(rng.integers(len(keywords(op))))]
    dtype = np.dtype(["f4", "f4", "f8", "f2"][int(rng.integers(4))]) if not op.single else np.dtype("f4")
    made = []
    if op.family == "compression":
        n, p = 9, int(rng.integers(13, 300))
        given = given | ({"page": p} if "page" in given else {})
        return list(lz4_samples.operands(op.name, lz4_samples.shapes(op.name, n * p, p), rng)), given
    if op.structured:
        shapes = op.held(dict.fromkeys(sorted({d for s in op.signature.inputs for d in s.dims}), 17), given)
        if op.name == "convolve2d":
            shapes = [(19, 23), (3, 4)]
    else:
        n = 150_001 if long else 517
        shapes = [{"e": (n,), "w": (n,), "r": ()}[letter] for letter in op.layout]
    for spec, shape in zip(op.signature.inputs, shapes, strict=True):
        if spec.blocks:
            made.append(random_rows(op.blocks(given), shape, rng))
        elif spec.index:
            indices = rng.integers(0, 17, shape or (5,))
            made.append(np.sort(indices) if spec.name.startswith("offsets") else indices)
        else:
            made.append(_numbers(rng, shape, dtype, spec.name == "imatrix"))
    if op.name == "symmetric_eigen":
        made = [np.maximum(made[0], made[0].T)]
    return made, given


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, positive: bool) -> np.ndarray:
    info, n = np.finfo(dtype), int(np.prod(shape, dtype=int))
    word = np.dtype(f"u{dtype.itemsize}")
    middle = 1 << (8 * dtype.itemsize - 1 - info.nmant - 1)  # of the exponents, one more than what stands for 1
    exponents = rng.integers(middle - 6, middle + 3, n)
    exponents[rng.random(n) < 0.1] = 0  # subnormal
    signs = rng.integers(0, 1 if positive else 2, n)
    bits = rng.integers(0, 1 << info.nmant, n) | exponents << info.nmant | signs << (8 * dtype.itemsize - 1)
    return bits.astype(word).view(dtype).reshape(shape)


def main(backend: str, seed: int, moment: str, mode: str) -> None:
    rng = np.random.default_rng(seed)
    if moment == "import":
        environments.change(mode)
    import trueno

    before = environments.control()
    environments.change("")
    from trueno.ops import TABLE  # not by the package's own way in, which sees to the environment

    with_long = backend in ("simd", "scalar")
    names = [str(n) for n in rng.choice(list(TABLE), FEW, replace=False)]
    calls = [(name, *_operands(TABLE[name], rng, with_long and rng.random() < 0.4)) for name in names]
    found: dict[str, str] = {}

    def compute(name: str, operands: list[Any], given: dict[str, Any], key: str) -> None:
        environment = environments.control()
        try:
            with trueno.use(backend):
                results = getattr(trueno, name)(*operands, **given)
        except trueno.TruenoError as error:
            found[key] = f"{type(error).__name__}: {error}"
        else:
            digest = hashlib.blake2b(digest_size=8)
            for x in results if isinstance(results, tuple) else (results,):
                digest.update(np.asarray(x).tobytes())
            found[key] = digest.hexdigest()
        after = environments.control()
        assert after == environment, f"{name}: the caller's environment was {environment:#x} and is {after:#x}"

    def all_of_them() -> None:
        if moment in ("import", "first", "thread"):
            environments.change(mode)
        for k in range(REPEATS):
            for i, (name, operands, given) in enumerate(calls):
                if (moment == "later" and k == 1) or (moment == "between" and (i + k) % 2):
                    environments.change(mode)
                elif moment == "between":
                    environments.change("")
                compute(name, operands, given, f"{name} {i} {k} {operands[0].dtype} {operands[0].shape} {given}")

    if moment == "import" and environments.available():
        assert before != 0, "nothing to see"
    if moment == "thread":
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                all_of_them()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
    else:
        all_of_them()
    environments.change("")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
