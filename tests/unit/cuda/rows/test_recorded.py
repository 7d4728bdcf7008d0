"""Recordings of row kernels: scratch memory that a kernel takes for itself lives as long as the recording."""

import numpy as np
from trueno_cuda.device.emulated import Emulator
from trueno_cuda.rows.rowprogram import RowKernel
from unit.cuda.rows.calls import key


def test_a_long_row_is_replayed() -> None:
    device = Emulator("sm_90")
    rng = np.random.default_rng(23)
    x, out = device.empty((1, 1000), np.dtype(np.float32)), device.empty((1,), np.dtype(np.float32))
    with device.recording() as recording:
        assert RowKernel(device, key("sum"), "long32x1")(x, out) == 0
    for _ in range(2):
        values = rng.uniform(-1, 1, (1, 1000)).astype(np.float32)
        device.write(values, x)
        recording.replay()
        np.testing.assert_allclose(device.to_host(out), values.sum(1, dtype=np.float64), rtol=1e-5)
