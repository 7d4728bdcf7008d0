"""Random graphs of ops through Batch: fused against bounds and against single calls, updates, replays, late reads."""

import warnings

import numpy as np
import trueno
from trueno.discovery import registry

from tests.unit.chains import SHAPES, Run, drawn

from .attack import Tally

BACKENDS = ("simd", "scalar", "reference", "cuda_emulated", "wgpu")
SHARE = 2.0
LIMIT = 300.0
LONGEST = 9
UPLOADS = 4


def case(rng: np.random.Generator, backend: str, tally: Tally) -> None:
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    if rng.random() < 0.3:
        shape = (*shape[:-1], int(rng.choice([2, 17, 64, 300])))
    dtype = np.dtype("f8" if rng.random() < 0.3 and backend not in ("wgpu",) else "f4")
    chain, seeds = drawn(rng, LONGEST), [int(s) for s in rng.integers(0, 1 << 30, 2)]
    accuracy = registry.load(backend).accuracy
    said = f"{shape} {dtype} {chain}"
    with warnings.catch_warnings(), trueno.use(backend, "reference"):
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's own, of the judge
        try:
            with trueno.Batch(backend) as b, trueno.Batch(backend) as other:
                run = Run(b, shape, chain, dtype, seeds[0], accuracy)
                again = Run(other, shape, chain, dtype, seeds[1], accuracy)
                tally.states, tally.calls = 1, 2 * (len(run.handles) - UPLOADS)
                _attack(rng, b, run, again)
        except Exception as error:
            raise AssertionError(f"{said}: {type(error).__name__}: {error}") from error


def _attack(rng: np.random.Generator, b: trueno.Batch, run: Run, again: Run) -> None:
    results = range(UPLOADS, len(run.handles))
    for k in results:
        if rng.random() < 0.2:
            b.keep(run.handles[k])
    dropped = {k for k in results if rng.random() < 0.2}
    for k in dropped:
        run.handles[k] = None  # nobody can read it: it may be fused away for good
    readable = [k for k in results if k not in dropped]
    b.execute()
    first = {}
    for k in rng.permutation(readable).astype(int) if readable else ():
        first[k] = np.array(b.read(run.handles[k]))
        _judge(run, k, first[k])
    try:
        _change(rng)
        b.execute()
        for k in readable:
            if rng.random() < 0.5:
                _judge(run, k, np.asarray(b.read(run.handles[k])))
    finally:
        trueno.settings.override("TRUENO_GUARD", None)
        trueno.settings.override("TRUENO_CALIBRATION", None)
    for k in range(UPLOADS):
        b.update(run.handles[k], again.plain[k])
    for k in readable:
        try:
            got = b.read(run.handles[k])  # of before, or refused: never a mixture
        except trueno.BatchError:
            continue
        _judge(run, k, np.asarray(got))
    b.execute()
    for k in readable:
        _judge(again, k, np.asarray(b.read(run.handles[k])))


def _change(rng: np.random.Generator) -> None:
    """Something after which plans are rebuilt."""
    which = int(rng.integers(5))
    if which == 0:
        trueno.settings.reload()
    elif which == 1:
        trueno.settings.override("TRUENO_CALIBRATION", "off")
    elif which == 2:
        trueno.reset_quarantine()
    elif which == 3:
        registry.forget()


def _judge(run: Run, k: int, got: np.ndarray) -> None:
    from trueno.judge.bound import judge

    assert got.shape == run.plain[k].shape, f"value {k}: shape {got.shape}, not {run.plain[k].shape}"
    assert got.dtype == run.plain[k].dtype
    for what, x in (("in the batch", got), ("called alone", run.plain[k])):
        found = judge(x, run.known[k].bound())
        assert found.ok, f"value {k}, {what}: {found}"
