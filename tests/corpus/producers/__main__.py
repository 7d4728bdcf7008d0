"""`python -m tests.corpus.producers triton --into tests/corpus/foreign`: print the kernels of a producer again.

triton needs `pip install triton`; numba `pip install numba-cuda nvidia-nvvm cuda-bindings`; tinygrad `pip install
tinygrad numpy`.  None needs a GPU.
"""

import argparse
import re
from importlib import import_module
from pathlib import Path

from . import Kernel

COMMENT = re.compile(r"^[ \t]*//.*\n", re.M)
DEBUG = re.compile(r"^\s*\.section\s+\.debug_\w+\s*\{.*?^\s*\}\n", re.M | re.S)
EMPTY = re.compile(r"\n{2,}")


def compact(text: str) -> str:
    """Without the producer's comments and debugging tables, which nothing reads; lines of the source stay."""
    return EMPTY.sub("\n", COMMENT.sub("", DEBUG.sub("", text))).strip() + "\n"


def written(kernel: Kernel, made_by: str) -> str:
    """A file of the corpus: who printed it, and how it is launched."""
    text = compact(kernel.text)
    parameters = text[text.index(".entry") :].partition(")")[0].count(".param")
    words = kernel.args.split()
    words += ["0"] * (parameters - len(words))  # scratch memory, which these kernels do not use
    return f"// by: {made_by}\n// launch: {kernel.sizes} args {' '.join(words)}\n{text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("producer", choices=["triton", "numba", "tinygrad"])
    parser.add_argument("--into", type=Path, required=True)
    given = parser.parse_args()
    module = import_module(f".{given.producer}_kernels", __package__)
    folder = given.into / given.producer
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ptx"):
        old.unlink()
    for kernel in module.emit():
        path = folder / f"{kernel.stem}.ptx"
        path.write_text(written(kernel, module.version()), "ascii")
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
