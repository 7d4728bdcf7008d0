"""Right uses, of which no type checker may complain: `test_uses.py` gives the file to mypy --strict and to pyright, and
runs it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import trueno
from numpy.typing import NDArray
from trueno import Action, Batch, Condition, JidokaGuard, KVCache, Matrix, QuantizedMatrix, Vector

x = np.ones((4, 32), np.float32)
w = np.ones(32, np.float32)
v = Vector([1.0, 2.0, 3.0])
m = Matrix([[1.0, 2.0], [3.0, 4.0]], dtype="float64", backend="scalar")


def single(a: NDArray[np.float32], b: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[Any]]:
    return trueno.add(trueno.relu(a), 1.0), trueno.scale(trueno.mul(2.0, b), 0.5)


def passed(a: NDArray[np.float32]) -> NDArray[np.float32]:
    guarded = JidokaGuard()(trueno.softmax)
    with ThreadPoolExecutor() as pool:
        later = pool.submit(trueno.relu, a)
        print(pool.submit(trueno.mean, a).result(), pool.submit(trueno.mul, a, a).result())
        return guarded(later.result())


def product(a: NDArray[np.float32]) -> NDArray[np.float32]:
    return trueno.matmul(trueno.add([[1.0]], a), a)


def anything(a: Any) -> Any:
    print(trueno.numpy(trueno.quantize(x, "q8_0") @ trueno.to(a, "scalar")), trueno.add(a, 1.0).shape)
    return trueno.matmul(a, x) if len(a.shape) > 1 else trueno.add(a, a)


def arrays() -> None:
    a: NDArray[Any] = trueno.softmax(x)
    b: NDArray[Any] = trueno.add(a, 1)
    c: NDArray[np.float32] = trueno.layer_norm(b, w, w, eps=1e-6)
    trueno.add([1.0, 2.0], [3, 4])
    trueno.matmul([[1.0, 2.0], [3.0, 4.0]], np.eye(2, dtype=np.float32))
    trueno.add(c, c, out=c).fill(0.0)
    trueno.scale(c, np.float32(0.5))
    trueno.scale(c, trueno.max(Vector(w)))
    h, y = trueno.residual_rms_norm(c, c, w)
    trueno.residual_rms_norm(c, c, w, out=(h, y))
    trueno.residual_rms_norm(c, c, w, out=[h, y])
    total = trueno.sum(c, axis=None)
    print(float(total), total.dtype)
    rows = trueno.sum(c, axis=0, keepdims=True)
    print(rows.shape)
    values, at = trueno.topk(c, 2)
    print(values[at.argmax()])
    trueno.embedding_lookup(x, [0, 1])
    trueno.embedding_lookup(x, np.arange(3))
    trueno.concatenate(c, c, c)
    trueno.concatenate([c, c, c], axis=1)
    trueno.clip(trueno.log(c + 1), 0, 1)
    trueno.gelu(c, approximate="none")
    first, second = trueno.split(c, [1, 3])
    print(first.shape, second.shape, trueno.repeat(w, 2).shape)
    kernel = trueno.add.plan(c, c, backend="scalar")
    print(kernel(c, c, np.empty_like(c)))


def forwarded(a: NDArray[Any], out: NDArray[Any] | None = None, axis: int | None = None) -> NDArray[Any]:
    print(trueno.mean(a, axis=axis, keepdims=bool(axis)))
    return trueno.relu(a, out=out)


def either(a: Vector | Matrix | NDArray[Any] | Sequence[float]) -> Any:
    return trueno.softmax(a)


def holders() -> None:
    a: Vector = trueno.softmax(v)
    b: Matrix = trueno.add(m, 1.0)
    c: Vector = (a + a) * 2.0 - [1.0, 2.0, 3.0]
    d: Vector = 2.0 / c.abs().clamp(0.5, 1.0)
    e: Matrix = (b @ b).relu().T
    f: Vector = e @ Vector([1.0, 2.0], dtype=np.float64)
    g: Vector = m.sum()
    s: np.floating[Any] = v.sum() + v @ v
    k: Matrix = m.sum(keepdims=True) * m
    print(d.softmax().backend, f.size, g.dtype.itemsize, float(s), k.rows, e.cols, -v, abs(v), v**2, s > 1)
    print(v[0], v[1:].shape, m[0].shape, m[:, 1].shape, m[0, 1], [float(i) for i in v], (v == v).all(), len(v))
    print(m.with_backend("simd").numpy(), v.to_vec(), np.asarray(v), v.to("scalar").device)
    print(trueno.outer(v, w[:3]).shape, m.argmax().dtype, Vector(i / 2 for i in range(3)))
    print(Vector.from_slice([1.0]), Matrix.from_slice(1, 2, [1.0, 2.0]), Vector(range(3)), Vector(np.ones(2)))
    print(v + w[:3], w[:3] * v, trueno.add(w[:3], v), Vector(v), trueno.dot(v, v))
    m.softmax(axis=0, out=m)


def quantized(kind: Literal["q4_k", "q8_0"] = "q8_0") -> QuantizedMatrix:
    q = trueno.quantize(x, kind)
    print((q @ w).shape, (w[:4] @ q.T.T), q.T.shape, q.format, q[1:3], q[[0, 2]], trueno.dequantize(q) + 1)
    print(trueno.quant_matvec(q, w), trueno.quant_matmul(x, q, activations="f32"), (q @ Vector(w)).softmax())
    for name in trueno.quant.WEIGHTS:
        if "k" not in name and name != "iq4_xs":
            trueno.quantize(x, name)
    trueno.quantize(x, "Q4_0", imatrix=w)
    print(q.dequantize()[0], Vector([1.0], np.float64))
    return trueno.requantize(q, q.format)


def backends(plugin: str = "scalar") -> None:
    with trueno.use("scalar"), trueno.prefer("scalar", "reference"):
        trueno.relu(x)
    for name in ["scalar", "reference"]:
        with trueno.use(name):
            trueno.relu(x)
    with trueno.use(plugin):
        trueno.relu(x)
    trueno.set_default(plugin)
    trueno.set_default()
    here: NDArray[Any] = trueno.to(x, "scalar")
    print(trueno.numpy(trueno.to(here, plugin)).shape)
    with trueno.device("scalar") as d:
        buffer = d.relu(d.upload([1.0, -1.0]))
        print(d.read(d.add(buffer, 1.0)).sum(), d.name)


def probed() -> str:
    """Not called: it may start every backend."""
    with trueno.use():
        return trueno.select_best_available_backend().name + trueno.backends()["simd"].reason


def batches() -> None:
    with Batch("scalar") as b:
        h = b.upload(x)
        y = b.scale(b.relu(h), 2.0)
        first, second = b.residual_rms_norm(y, y, b.upload(w))
        b.keep(first)
        b.keep((2 * h - y / 3.0) ** 2 + (-abs(h)) @ b.transpose(h) @ h)
        total = b.sum(b.add(second, 1.0).reshape((-1,)), axis=None)
        b.execute(wait=True)
        out: NDArray[np.float32] = b.read(first, np.empty_like(x))
        print(b.read(total), out.shape, b.counts.kernels, b.fetch(second)().shape, y.dtype, b)


@trueno.use("scalar")
def decorated(a: NDArray[Any]) -> NDArray[Any]:
    return trueno.relu(a)


def observed() -> None:
    guard = JidokaGuard().on(Condition.NAN, Action.STOP).on(Condition.divergence(1e-3), Action.FALL_BACK)
    with guard, trueno.trace(["run", "decision"]) as t:
        decorated(x)
    print(t.summary(), [event.op for event in t.events], t.seconds, t.json()["began"])
    decision = trueno.explain(trueno.add, x, x)
    print(decision.chosen, [c.seconds for c in decision.candidates], trueno.stats().fallbacks)


def caches() -> None:
    cache = KVCache(1, 2, 32, dtype="float32", capacity=8)
    one = cache.new()
    keys = np.ones((3, 2, 32), np.float32)
    cache.append(0, keys, keys, one)
    print(cache.attend(0, keys, one).shape, cache.length(one), cache.pages(0)[0].nbytes)


def higher(function: Callable[[NDArray[Any]], NDArray[Any]] = trueno.relu) -> NDArray[Any]:
    return function(x)


def refused() -> str:
    try:
        trueno.matmul(x, x)
    except trueno.ShapeError as error:
        return str(error)
    return ""


async def later() -> None:
    a, b = await asyncio.gather(trueno.aio.add(x, x), trueno.aio.softmax(v))
    print(a.shape, b.softmax(), await trueno.aio.to(x, "scalar"))
    with await trueno.aio.device("scalar") as d:
        print(d.read(await trueno.aio.relu(d.upload(x))))


def everything() -> None:
    single(w, w)
    passed(w)
    product(np.eye(2, dtype=np.float32))
    arrays()
    anything(w)
    forwarded(x)
    either([1.0, 2.0])
    holders()
    quantized()
    backends()
    batches()
    observed()
    caches()
    higher()
    refused()
    asyncio.run(later())


if __name__ == "__main__":
    everything()
