"""Wrong uses, as people write them: each line says what is wrong, and a type checker must object to it.

The lines were written down before any checker had read them.  `MISSED: ` marks one that neither of them finds.
Nothing here is ever run: `test_uses.py` gives the file to the checkers.
"""

import numpy as np
import trueno
from trueno import Batch, Matrix, Vector

x = np.ones((4, 32), np.float32)
v = Vector([1.0, 2.0, 3.0])
m = Matrix([[1.0, 2.0], [3.0, 4.0]])
q = trueno.quantize(x, "q8_0")
cache = trueno.KVCache(2, 4, 64, capacity=128)


async def coroutines() -> None:
    await trueno.softmax(x)  # wrong: trueno.softmax returns an array, nothing to await
    trueno.add(trueno.aio.add(x, x), x)  # wrong: the coroutine is not awaited
    await trueno.aio.softmx(x)  # wrong: a misspelt op


def names() -> None:
    trueno.softmx(x)  # wrong: a misspelt op
    v.sofmax()  # wrong: a misspelt method
    trueno.softmax(v).sofmax()  # wrong: a misspelt method of a result
    m.relu().foo().bar(1, 2, baz=3)  # wrong: no such method in a chain
    trueno.softmax(x, axes=0)  # wrong: a misspelt keyword
    trueno.softmax(x, dim=0)  # wrong: PyTorch's keyword
    q.transpose()  # wrong: QuantizedMatrix has T
    trueno.add.plans(x, x)  # wrong: plan, not plans


def choices() -> None:
    trueno.gelu(x, approximate="fast")  # wrong: the choices are tanh and none
    trueno.quantize(x, "nope")  # wrong: no such format
    trueno.quantize(x, "q4_k_m")  # wrong: a mixture for files, no format
    Vector([1.0], dtype="float23")  # wrong: no such dtype
    trueno.convolve2d(x, x, mode="full")  # wrong: valid or same
    with trueno.use("simmd"):  # wrong: a misspelt backend
        pass
    with trueno.prefer("gpu"):  # wrong: the kind of a backend, not its name
        pass
    with trueno.trace("runs"):  # wrong: the kind of event is run
        pass
    trueno.JidokaGuard().on("nan", trueno.Action.STOP)  # wrong: a Condition is needed
    trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.HALT)  # wrong: no such action


def operands() -> None:
    v + "a"  # wrong: a string is no operand
    v @ 3.0  # wrong: a product with a number
    trueno.add(x)  # wrong: an operand is missing
    trueno.relu(x, x)  # wrong: an operand too many
    trueno.clamp(x, 0.0)  # wrong: max is missing
    trueno.softmax("abc")  # wrong: a string is no array
    trueno.softmax({"a": 1.0})  # wrong: a dict is no array
    trueno.embedding_lookup(x, 1.5)  # wrong: an index is an integer
    trueno.sum(x, axis="0")  # wrong: axis is an integer
    trueno.softmax(x, out="y")  # wrong: out is an array
    trueno.residual_rms_norm(x, x, x, out=x)  # wrong: out is one array, the results are two
    trueno.to(x, 3)  # wrong: a backend is named by a string
    trueno.quant_matvec(v, v)  # wrong: the first operand is quantized
    q + 1.0  # wrong: a QuantizedMatrix has no sum
    q[3]  # wrong: rows are a slice or a list
    trueno.layer_norm(x, x, x, eps="small")  # wrong: eps is a number
    Matrix.from_slice(2, [1.0, 2.0])  # wrong: the number of columns is missing


def batches() -> None:
    with Batch("simd") as b:
        h = b.upload(x)
        b.execute(1)  # wrong: wait is a keyword
        b.add(h, x)  # wrong: an array that was not uploaded
        h + "1"  # wrong: a string is no operand
        first, second = b.relu(h)  # wrong: relu has one result
        b.relu(h).numpy()  # wrong: a handle has no array; b.read(h)
        b.sofmax(h)  # wrong: a misspelt op
        trueno.relu(h)  # wrong: a handle outside of its batch
        print(b.execute() + 1)  # wrong: execute returns nothing


def others() -> None:
    cache.attend(0, x)  # wrong: the sequence is missing
    cache.append(0, "k", "v", 0)  # wrong: keys are arrays
    trueno.KVCache(2, 4, 64)  # wrong: capacity is missing
    with trueno.device("simd") as d:
        d.upload("text")  # wrong: a string is no array
        d.sofmax(x)  # wrong: a misspelt op
    trueno.explain(trueno.add, x, x).choosen  # wrong: the attribute is chosen
    trueno.gguf.open("model.gguf").tensor("w")  # wrong: no such method
    trueno.lz4.compress(b"abc", levels=1)  # wrong: the keyword is level
    trueno.stats().fallback  # wrong: the attribute is fallbacks
    with trueno.trace() as t:
        t.summery()  # wrong: a misspelt method
