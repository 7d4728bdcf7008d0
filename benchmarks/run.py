"""`python -m benchmarks.run`: measure, print the table of targets, keep the figures."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

GROUPS = (
    "startup", "door", "dispatch", "general", "aio", "inplace", "guards", "threads", "functions", "quartiles", "rust",
    "structured", "language", "rows", "elementwise", "reductions", "batch", "ptx", "quant", "lz4", "engine", "dask",
    "wgpu",
    "cuda", "language_cuda", "engine_cuda", "lz4_gpu", "gpus", "regret",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Trueno against NumPy and PyTorch.")
    p.add_argument("--quick", action="store_true", help="under a minute: one short run of each, two sizes")
    p.add_argument("--rows", default=",".join(GROUPS), metavar="A,B", help=f"groups of rows: {', '.join(GROUPS)}")
    p.add_argument("--sizes", metavar="N,M", help="elements of the operands (default 1024,100000,1000000,16000000)")
    p.add_argument("--ops", metavar="A,B", help="only cells whose op is one of these")
    p.add_argument(
        "--dtype", choices=("float32", "float64"), default="float32", help="of the regret rows (default float32)"
    )
    p.add_argument("--threads", type=int, default=2, help="threads for everybody (default 2)")
    p.add_argument("--json", metavar="FILE", type=Path, help="write here too, and Markdown beside it")
    return p


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(n.replace("_", "")) for n in text.split(","))
    except ValueError:
        raise SystemExit(f"--sizes {text}: numbers with commas between, please") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 1 if some result was wrong or an op failed, never because something was slow."""
    args = parser().parse_args(arguments)
    wanted = [name.strip() for name in args.rows.split(",")]
    for name in wanted:
        if name not in GROUPS:
            raise SystemExit(f"--rows {name}: there is no such group; groups are {', '.join(GROUPS)}")
    for variable in ("TRUENO_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(args.threads)  # read when the libraries are imported, which is now
    from benchmarks import session

    sizes = _numbers(args.sizes) if args.sizes else None
    ops = tuple(name.strip() for name in args.ops.split(",")) if args.ops else None
    full = not (args.quick or args.sizes or args.ops) and set(wanted) == set(GROUPS)
    return session.run(wanted, sizes, ops, args.quick, args.threads, args.json, args.dtype, keep=full)


if __name__ == "__main__":
    sys.exit(main())
