"""A GPU's name, memory, load and power, before and after it works.  `python examples/cuda/cuda_monitor.py`

`trueno_cuda.monitor()` looks once.  The figures are NVML's, if its binding is installed (`pip install nvidia-ml-py`);
without it the driver knows the name, and the memory once this process uses the GPU.  What cannot be read is None.
"""

import sys
from time import monotonic

import numpy as np
import trueno
import trueno_cuda

SECONDS = 3


def show(when: str) -> None:
    """One look, a line for each figure that can be read here."""
    r = trueno_cuda.monitor()
    print(f"{when}: {r}")
    if r.memory_used is not None and r.memory_total:
        print(f"  memory       {r.memory_used / 2**30:.2f} of {r.memory_total / 2**30:.2f} GiB, "
              f"{r.memory_used / r.memory_total:.0%}, of all processes")  # fmt: skip
    if r.gpu_load is not None:
        print(f"  utilization  a kernel ran {r.gpu_load} % of the time, memory was accessed {r.memory_load or 0} %")
    if r.power is not None and r.power_limit:
        print(f"  power        {r.power:.0f} of {r.power_limit:.0f} W")


def work(seconds: float) -> None:
    """Keep the GPU busy: products of matrices that stay there."""
    a = trueno.to(np.random.default_rng().standard_normal((4096, 4096)).astype(np.float32), "cuda")
    end = monotonic() + seconds
    while monotonic() < end:
        for _ in range(8):
            product = trueno.matmul(a, a)
        first = trueno.numpy(product)[0, 0]  # waits, so that no queue of hours is built
    row, column = trueno.numpy(a)[0].astype(np.float64), trueno.numpy(a)[:, 0].astype(np.float64)
    error, allowed = abs(first - row @ column), 4097 * 2.0**-24 * (np.abs(row) @ np.abs(column))
    print(f"  an element of the last product: error {error:.2g}, {allowed:.2g} allowed")
    if not error <= allowed:
        sys.exit(1)


def main() -> None:
    try:
        driver = trueno_cuda.monitor().driver
    except trueno.BackendUnavailable as error:
        print(f"there is no GPU to watch, and the emulator has neither load nor temperature: {error}")
        return
    print(f"driver {driver}")
    show("idle")
    if not (here := trueno.backends()["cuda"]).available:
        print(f"it can be watched, but not used: {here.reason}")
        return
    work(SECONDS)
    show(f"after {SECONDS} seconds of work")


if __name__ == "__main__":
    main()
