"""Expressions of tinygrad.  `emit` prints their kernels for sm_80 with its PTX renderer, without a GPU."""

import math
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version as installed

os.environ["DEV"] = "NULL"  # before tinygrad is imported

from tinygrad import Tensor, dtypes
from tinygrad.codegen import to_program
from tinygrad.helpers import Target
from tinygrad.renderer.ptx import PTXRenderer

from . import Kernel

EXPRESSIONS: list[Callable[[], Tensor]] = []


def expression(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    EXPRESSIONS.append(function)
    return function


def _x(*shape: int, dtype=dtypes.float32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


@expression
def weighted_sum():
    return 3 * _x(1500) + _x(1500)


@expression
def softmax_rows():
    return _x(3, 300).softmax(-1)


@expression
def layer_norm():
    return _x(12, 300).layernorm() * _x(300) + _x(300)


@expression
def total():
    return _x(5000).sum()


@expression
def sum_of_rows():
    return _x(32, 1024).sum(1)


@expression
def largest_of_columns():
    return _x(1024, 64).max(0)


@expression
def argmax_rows():
    return _x(8, 256).argmax(1)


@expression
def running_sum():
    return _x(4, 600).cumsum(1)


@expression
def product():
    return _x(64, 64).matmul(_x(64, 64))


@expression
def product_of_halves():
    return _x(64, 64, dtype=dtypes.half).matmul(_x(64, 64, dtype=dtypes.half), dtype=dtypes.float32)


@expression
def row_times_matrix():
    return _x(1, 512).matmul(_x(512, 64))


@expression
def transposed():
    return _x(40, 60).permute(1, 0).contiguous()


@expression
def gather_rows():
    return _x(100, 70)[_x(30, dtype=dtypes.int32)]


@expression
def histogram():
    return (_x(600, dtype=dtypes.int32).reshape(600, 1) == Tensor.arange(100).reshape(1, 100)).sum(0)


@expression
def dropout():
    return (_x(900, dtype=dtypes.uint32) % 4 != 0).where(_x(900) / 0.75, 0)


@expression
def smoothed():
    return _x(1, 4, 20, 20).conv2d(_x(8, 4, 3, 3))


@expression
def pooled():
    return _x(1, 4, 20, 20).max_pool2d()


@expression
def attention():
    return _x(1, 2, 32, 32).scaled_dot_product_attention(_x(1, 2, 64, 32), _x(1, 2, 64, 32))


def version() -> str:
    return f"tinygrad {installed('tinygrad')}"


ARCH = 80
KINDS = {dtypes.float32: "f32", dtypes.half: "f16", dtypes.int32: "u32", dtypes.uint32: "u32", dtypes.bool: "u8",
         dtypes.int64: "u64", dtypes.uint64: "u64"}  # fmt: skip


def emit() -> Iterator[Kernel]:
    for function in EXPRESSIONS:
        renderer = PTXRenderer(Target("CUDA", "PTX", f"sm_{ARCH}"))
        calls = [call for call in function().schedule_linear().src if call.src[0].op.name == "SINK"]
        for number, call in enumerate(calls):
            program = to_program(call.src[0], renderer)
            facts, buffers = program.arg, call.src[1:]
            words = []
            for slot in facts.globals:
                buffer = buffers[slot]
                fill = "zeros:" if slot in facts.outs else ""
                words.append(f"{fill}{KINDS[buffer.dtype]}[{math.prod(buffer.shape)}]")
            grid = ",".join(map(str, facts.global_size))
            block = ",".join(map(str, facts.local_size or (1,)))
            stem = f"{function.__name__}-sm_{ARCH}"
            if number < len(calls) - 1:
                stem = f"{function.__name__}_part{number}-sm_{ARCH}"
            text = next(s.arg for s in program.src if s.op.name == "BINARY").decode()
            yield Kernel(stem, text, f"grid {grid} block {block} shared 0", " ".join(words))
