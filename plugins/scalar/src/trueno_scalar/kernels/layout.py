"""Copies by NumPy: their meaning is the bodies in `trueno.ops.layout`."""

import numpy as np
from trueno.backend import Call, Kernel, Rates
from trueno.errors import ShapeError

from trueno_scalar.kernels.table import KERNELS, Array, Shapes, checked


def _concatenate(a: Array, b: Array, y: Array, *, axis: int) -> None:
    np.concatenate((a, b), axis, out=y)


@KERNELS.add("concatenate", rates=Rates(3e-6, 1e11, 4e10))
def concatenate(device: None, call: Call) -> Kernel:
    def shapes(a: Array, b: Array, *, axis: int) -> Shapes:
        try:
            return call.op.result_shapes((a.shape, b.shape), {"axis": axis})
        except ShapeError:
            return None

    return checked(call, _concatenate, shapes)
