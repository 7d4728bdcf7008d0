"""A batch that is executed again runs its kernels in machine code, with the results of Python's way."""

import asyncio

import numpy as np
import pytest
import trueno

pytest.importorskip("trueno_simd")

from seeds import fresh_seed
from trueno.batch.host import HostSequence  # the plugin may be missing

from tests.float_modes import in_mode, needs_modes

F, HEADS, SIZE = np.float32, 4, 64


@pytest.fixture
def seed():
    return fresh_seed()


class Layer:
    """A bit of a transformer: every kind of kernel that a sequence takes, with uploads that change."""

    def __init__(self, seed: int, backend: str = "simd", tokens: int = 3) -> None:
        rng = np.random.default_rng(seed)
        width = HEADS * SIZE

        def numbers(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape).astype(F)

        self.rng, self.tokens = rng, tokens
        self.words = rng.integers(0, 50, tokens)
        self.positions = rng.integers(0, 1 << 20, tokens)
        self.b = b = trueno.Batch(backend)
        self.inputs = [b.upload(self.words), b.upload(self.positions)]
        x = b.embedding_lookup(b.upload(numbers(50, width)), self.inputs[0])
        h = b.rms_norm(x, b.upload(1 + 0.1 * numbers(width)))
        q = b.quant_matmul(h, b.upload(trueno.quantize(numbers(width, width), "q8_0")))
        row = b.quant_matvec(b.upload(trueno.quantize(numbers(width, width), "q4_0")), b.upload(numbers(width)))
        whole = b.matmul(q, b.upload(numbers(width, width)))
        gated = b.swiglu(b.add(whole, row), q)
        heads = b.upload(numbers(tokens, HEADS, SIZE))
        turned = b.rope(heads, self.inputs[1], theta=1e6)
        seen = b.attention(turned, heads, heads, causal=True)
        self.pages = np.zeros((2, 8, HEADS, SIZE), F)
        self.lengths, self.slots = np.array([tokens]), np.arange(tokens)
        self.inputs += [b.upload(self.lengths), b.upload(self.slots)]
        cache = b.kv_cache_scatter(b.upload(trueno.Pages(self.pages)), turned, self.inputs[3])
        query = b.upload(numbers(1, 1, HEADS, SIZE))
        decoded = b.attention_decode(query, cache, cache, b.upload(np.array([[0, 1]])), self.inputs[2])
        drawn = b.sample(gated, b.upload(np.asarray(rng.random(tokens), F)), temperature=0.7, top_k=5, top_p=0.9)
        self.results = [b.softmax(gated), seen, b.argmax(gated), b.dot(row, row), decoded, drawn]

    def change(self) -> None:
        """New indices, in the arrays that were uploaded."""
        self.words[...] = self.rng.integers(0, 50, self.tokens)
        self.positions[...] = self.rng.integers(0, 1 << 20, self.tokens)
        self.slots[...] = self.rng.permutation(16)[: self.tokens]
        self.lengths[...] = self.rng.integers(1, 17)

    def run(self) -> list[np.ndarray]:
        self.b.execute()
        return [self.b.read(h) for h in self.results]

    @property
    def sequence(self) -> HostSequence | None:
        return self.b._replay._recorded


def table(sequence: HostSequence) -> np.ndarray:
    """The machine code and the record of each step; zeros for one that Python runs."""
    return sequence._run.kept[0]


def equal(results, others) -> bool:
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(results, others, strict=True))


def test_the_results_are_those_of_single_kernels(seed):
    layer = Layer(seed)
    for _ in range(5):
        layer.change()
        fresh = Layer(seed)
        for name in ("words", "positions", "slots", "lengths"):
            getattr(fresh, name)[...] = getattr(layer, name)
        fresh.pages[...] = layer.pages
        assert equal(layer.run(), fresh.run()), f"seed {seed}"
        assert fresh.sequence is None, "the first run is Python's"
    assert table(layer.sequence).all(), "every step is machine code"


def test_wrong_indices_are_errors_that_name_the_op(seed):
    layer = Layer(seed)
    layer.run()
    right = layer.run()
    kept = int(layer.words[1])
    layer.words[1] = 50
    with pytest.raises(trueno.ParameterError, match=r"embedding_lookup: i\[1\] is 50") as caught:
        layer.b.execute()
    assert any("in a batch" in note for note in caught.value.__notes__)
    layer.words[1] = kept
    layer.positions[2] = -1
    with pytest.raises(trueno.ParameterError, match=r"rope: positions\[2\] is -1"):
        layer.b.execute()
    layer.positions[2] = 5
    assert equal([layer.run()[0]], [right[0]]), f"seed {seed}"


def test_an_update_is_seen(seed):
    layer = Layer(seed)
    for _ in range(3):
        layer.run()
    words = (layer.words + 7) % 50
    layer.b.update(layer.inputs[0], words)
    fresh = Layer(seed)
    fresh.words[...] = words
    want = fresh.run()
    for _ in range(3):
        assert equal(layer.run(), want), f"seed {seed}"


def test_other_types_are_left_to_python(seed):
    rng = np.random.default_rng(seed)
    x, positions = rng.standard_normal((8, 2, 16)).astype(F), np.arange(8, dtype=np.int32)
    with trueno.Batch("simd") as b:
        h = b.rope(b.upload(x), b.upload(positions))
        total = b.add(h, b.upload(x))
        want = trueno.add(trueno.rope(x, positions.astype(np.int64)), x)
        for _ in range(4):
            b.execute()
            assert np.array_equal(b.read(total), want), f"seed {seed}"


@needs_modes
@pytest.mark.parametrize("mode", ["up", "flush"])
def test_the_callers_modes_change_nothing(seed, mode):
    layer = Layer(seed)
    layer.run()
    want = layer.run()
    with in_mode(mode):
        results = layer.run()
    assert equal(results, want), f"seed {seed}"


def test_a_guard_or_a_trace_sees_every_kernel(seed):
    layer = Layer(seed)
    layer.run()
    want = layer.run()
    with trueno.trace() as events:
        assert equal(layer.run(), want)
    assert {"quant_matvec", "rope"} <= {event.op for event in events if event.kind == "run"}
    with trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
        assert equal(layer.run(), want)
        assert layer.sequence is None
    for _ in range(3):
        assert equal(layer.run(), want), f"seed {seed}"
    assert layer.sequence is not None


def test_in_a_worker_thread(seed):
    layer = Layer(seed)
    layer.run()
    want = layer.run()

    async def some() -> list[np.ndarray]:
        await layer.b.execute_async()
        return [layer.b.read(h) for h in layer.results]

    assert equal(asyncio.run(some()), want), f"seed {seed}"


def test_other_backends_run_between(seed, monkeypatch):
    """Steps that are not of the sequence run in Python, in their places."""
    layer = Layer(seed)
    want = layer.run()
    layer.run()
    for at in range(len(table(layer.sequence))):
        entry = table(layer.sequence)[at].copy()
        table(layer.sequence)[at] = 0
        assert equal(layer.run(), want), f"seed {seed}"
        table(layer.sequence)[at] = entry
    table(layer.sequence)[...] = 0
    assert equal(layer.run(), want), f"seed {seed}"


def test_a_failing_sequence_is_reported_once(seed, monkeypatch):
    from trueno.discovery import registry

    def broken(calls):
        raise ValueError("no")

    monkeypatch.setattr(registry.load("simd"), "sequence", broken, raising=False)
    layer = Layer(seed)
    want = layer.run()
    with pytest.warns(trueno.TruenoWarning, match=r"simd made no sequence of its kernels \(ValueError: no\)"):
        assert equal(layer.run(), want)
    assert equal(layer.run(), want), f"seed {seed}"


def test_arguments_are_what_the_kernel_takes():
    """A record is made for exactly the arrays that Numba's wrapper would let through."""
    from trueno_simd.door.sequence import takes

    x = np.zeros((4, 4), F)
    assert takes("float32 2 in", x)
    assert takes("float32 2 out", x)
    frozen = x.copy()
    frozen.flags.writeable = False
    shifted = np.zeros(65, np.uint8)[1:].view(F).reshape(4, 4)
    for wrong in (x.T[:, :2], x.astype(">f4"), x.astype(float), x[0], x.view(np.ma.MaskedArray), [1.0], shifted):
        assert not takes("float32 2 in", wrong)
    assert takes("float32 2 in", frozen)
    assert not takes("float32 2 out", frozen)


def test_nothing_to_run():
    with trueno.Batch("simd") as b:
        h = b.upload(np.ones(5, F))
        for _ in range(3):
            b.execute()
        assert (b.read(h) == 1).all()
