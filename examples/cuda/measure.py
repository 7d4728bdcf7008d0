"""What the programs of this folder share: where they run, what a call takes there, and whether its result is right."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import trueno

GPU = trueno.backends()["cuda"].available
BACKEND = "cuda" if GPU else "cuda_emulated"
"""Where everything runs: a real GPU if there is one."""


def device() -> Any:
    """What prepares launches: `name`, `arch`, the architecture to build for, and on a GPU `figures(kernel)`."""
    return trueno.backends()[BACKEND].load().device


def say_where() -> None:
    if GPU:
        print(f"on {device().name} ({device().arch})")
    else:
        print(f"on the emulator of {device().arch}, in small: {trueno.backends()['cuda'].reason}")


def empty(*shape: int) -> Any:
    """Room for a result there: float32, with NaN wherever a kernel forgets to write."""
    return trueno.to(np.full(shape, np.nan, np.float32), BACKEND)


def describe(built: Any) -> None:
    """What a kernel is before it runs: its text, and on a GPU what the driver made of it."""
    registers = f", {device().figures(built)['registers']} registers a thread" if GPU else ""
    print(f"{built.name}: {len(built.text):,} bytes of PTX in {built.text.count(chr(10))} lines, for {built.arch}")
    print(f"  a block has {' x '.join(map(str, built.threads))} threads, {built.shared_bytes:,} bytes of shared memory"
          f"{registers}")  # fmt: skip


def measure(call: Callable[[], Any], nbytes: float = 0, flops: float = 0) -> Any:
    """The result of a call.

    Prints its time on a GPU, with the rate at which it moves so many bytes and computes so many flops; on the emulator
    what was counted.
    """
    if not GPU:
        with device().reports() as reports:
            result = call()
        count(reports)
        return result
    result = call()  # the first call compiles
    best = min(clock(call) for _ in range(20))
    moved = f", {nbytes / best * 1e-9:.1f} GB/s" if nbytes else ""
    computed = f", {flops / best * 1e-12:.2f} TFLOP/s" if flops else ""
    print(f"  took {best * 1e6:.1f} us{moved}{computed}")
    return result


def clock(call: Callable[[], Any]) -> float:
    """Seconds between two events of the GPU around one call."""
    from cupy.cuda import Event, get_elapsed_time

    start, end = Event(), Event()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(get_elapsed_time(start, end)) * 1e-3


def count(reports: Sequence[Any]) -> None:
    """What the emulator saw of some launches.  A sector is 32 bytes, the least that global memory moves."""
    moved: Counter[str] = Counter()
    flops = instructions = sectors = needed = 0
    for report in reports:
        moved += Counter(report.bytes)
        flops += sum(report.flops.values())
        instructions += sum(report.instructions.values())
        sectors += sum(access.sectors for access in report.coalescing.values())
        needed += sum(access.ideal for access in report.coalescing.values())
    print(f"  launched: {', '.join(dict.fromkeys(report.kernel for report in reports))}")
    print(f"  counted: {moved['global read']:,} bytes read from global memory and {moved['global written']:,} written, "
          f"{needed / max(sectors, 1):.0%} of each sector used; {flops:,} flops, {instructions:,} instructions of "
          "threads")  # fmt: skip


def check(what: str, got: Any, wanted: np.ndarray, bound: Any) -> None:
    """Print the largest error beside what is allowed there, and exit with 1 if any element is further off, or NaN.

    got: an array on the device.  wanted: float64.  bound: a number, or one per element.
    """
    error = np.abs(trueno.numpy(got).astype(np.float64) - wanted)
    share = error / bound
    at = np.unravel_index(np.argmax(np.where(np.isnan(share), np.inf, share)), share.shape)
    right = bool(np.all(share <= 1))  # a NaN is not
    allowed = np.broadcast_to(bound, share.shape)[at]
    print(f"  {what}: error {error[at]:.2g}, {allowed:.2g} allowed: {'right' if right else 'WRONG'}")
    if not right:
        sys.exit(1)
