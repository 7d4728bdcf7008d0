"""Runs in a full distribution of Pyodide: Trueno as micropip installed it."""

import json
import random
import sys
from typing import Any

import numpy as np
import trueno
from trueno.errors import TruenoError

OPS = (
    "gelu", "softmax", "sum", "argmax", "rms_norm", "matmul", "matvec", "transpose", "topk", "attention", "rope",
    "quant_matvec", "embedding_lookup",
)  # fmt: skip
"""Row programs of each kind, and structured ops of each family."""
MOST = 20_000
"""Elements of an operand of a case."""


def error_of(got: Any, exact: Any) -> float:
    """The largest error relative to the largest value; NaN where shapes differ."""
    if np.shape(got) != np.shape(exact):
        return float("nan")
    return float(np.abs(np.asarray(got, float) - exact).max() / np.abs(exact).max())


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def host(seed: int) -> str:
    """The reference and scalar, without processes, threads, or a cache that lasts."""
    x = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
    found: dict[str, Any] = {"version": trueno.__version__, "platform": sys.platform}
    found["available"] = sorted(name for name, entry in trueno.backends().items() if entry.available)
    found["chosen"] = trueno.explain("softmax", (64, 64)).chosen
    found["softmax"] = error_of(trueno.softmax(x), softmax(x))
    with trueno.use("scalar"):
        found["matmul"] = error_of(trueno.matmul(x, x), x.astype(float) @ x)
    return json.dumps(found | {"cases": cases("scalar", seed)})


async def device(seed: int) -> str:
    """The wgpu backend, asynchronously."""
    x = np.random.default_rng(seed).standard_normal((5, 33)).astype(np.float32)
    found: dict[str, Any] = {}
    with await trueno.aio.device("wgpu") as d:
        found["adapter"] = d.adapter_name
        found["relu"] = error_of(await trueno.aio.numpy(d.relu(d.upload(x))), np.maximum(x, 0))
    with trueno.use("wgpu"):
        found["softmax"] = error_of(await trueno.aio.softmax(x), softmax(x))
    with trueno.Batch("wgpu") as b:
        h = b.exp(b.upload(x))
        await b.execute_async()
        found["batch"] = error_of(await b.read_async(h), np.exp(x.astype(float)))
    return json.dumps(found)


def waiting(seed: int) -> str:
    """The same where the page may wait, and the kit's cases; or a sentence."""
    found: dict[str, Any] = {"sync": trueno.sync_available()}
    try:
        with trueno.use("wgpu"):
            found["sum"] = error_of(trueno.sum(np.arange(100, dtype=np.float32)), 4950.0)
    except TruenoError as error:
        return json.dumps(found | {"error": f"{type(error).__name__}: {error}"})
    return json.dumps(found | {"cases": cases("wgpu", seed)})


def cases(backend: str, seed: int, ops: tuple[str, ...] = OPS) -> dict[str, int]:
    """A few of the conformance kit's cases for each op, and how many; AssertionError where one is outside its bound."""
    from trueno.ops import TABLE
    from trueno.testing import check_values

    rng, found = random.Random(seed), {}

    def chosen(case: Any) -> bool:
        return rng.random() < 0.05 and all(np.size(x) <= MOST for x in case.operands)

    for name in ops:
        for _ in range(20):  # a draw may be empty, or have nothing that can be judged
            try:
                report = check_values(
                    TABLE[name], backend, "float32", seed, long=False, every_layout=False, chosen=chosen
                )
            except AssertionError as error:
                if "no case of it could be judged" not in str(error):
                    raise
            else:
                found[name] = report.cases
                break
    return found
