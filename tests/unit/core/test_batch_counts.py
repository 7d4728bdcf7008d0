"""What a batch says that it did, against what the device counted, over random programs."""

import numpy as np
import pytest
import trueno
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

F = np.float32
N = 4
KINDS = (
    *("upload", "borrow", "list", "update", "unary", "binary", "number", "fold", "matmul", "norm", "axis"),
    *("keep", "drop", "execute", "read"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=24)


class Program:
    """Steps on a batch of the fake device, and what should come out."""

    def __init__(self, fake):
        self.fake = fake
        self.x = np.linspace(-1, 1, N * N, dtype=F).reshape(N, N)
        self.theirs = trueno.to(self.x, "fake")
        fake.LEDGER.reset()
        self.base = fake.LEDGER.live_bytes
        self.b = trueno.Batch("fake")
        self.uploads = [self.b.upload(self.x)]
        self.handles = list(self.uploads)
        self.general = self.executed = False

    def step(self, kind, i, j):
        b, h, g = self.b, self.handles[i % len(self.handles)], self.handles[j % len(self.handles)]
        made = ()
        if kind in ("upload", "borrow", "list"):
            h = b.upload({"upload": self.x, "borrow": self.theirs, "list": self.x.tolist()}[kind])
            self.uploads.append(h)
            made = (h,)
        elif kind == "unary":
            made = ((b.relu, b.tanh, b.abs)[j % 3](h),)
        elif kind == "binary":
            made = (b.maximum(h, g),)
        elif kind == "number":
            made = (b.add(h, float(j)),)
        elif kind == "fold":
            made = (b.sub(h, b.max(h, keepdims=True)),)
        elif kind == "matmul":
            made = (b.matmul(h, g),)
        elif kind == "norm":
            made = b.residual_rms_norm(h, g, b.max(h))
        elif kind == "axis":
            made, self.general = (b.softmax(h, axis=0),), True
        elif kind == "keep":
            b.keep(h)
        elif kind == "drop" and len(self.handles) > 1:
            del self.handles[i % len(self.handles)]
        elif kind == "update":
            upload = self.uploads[i % len(self.uploads)]
            b.update(upload, self.theirs if j % 3 == 0 else self.x + F(j))
        elif kind == "execute":
            b.execute()
        elif kind == "read":
            try:
                b.read(h)
            except trueno.BatchError:  # too early, or its uploads have changed
                return
        self.handles += made

    def check(self):
        counts, ledger = self.b.counts, self.fake.LEDGER
        for name in ("uploads", "downloads", "submits", "kernels"):
            assert getattr(counts, name) == getattr(ledger, name), name
        assert counts.bytes == ledger.bytes_up + ledger.bytes_down
        if not self.general:  # it needs room for a moment
            assert counts.allocations == ledger.allocs
            assert counts.peak_bytes == ledger.peak_bytes - self.base


@given(steps=STEPS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], print_blob=True)
def test_the_batch_counts_what_the_device_counts(fake, steps):
    program = Program(fake)
    for step in (*steps, ("execute", 0, 0)):
        program.step(*step)
        program.check()
    program.b.close()
    assert fake.LEDGER.live == 1  # the array that is ours
    np.testing.assert_array_equal(trueno.numpy(program.theirs), program.x)


def test_planning_anew_lets_the_old_buffers_go_first(fake):
    x = np.ones(1000, F)
    with trueno.Batch("fake") as b:
        h = b.keep(b.softmax(b.upload(x)))
        b.execute()
        e = b.exp(h)
        b.execute()
        assert b.counts.peak_bytes == fake.LEDGER.peak_bytes == 3 * x.nbytes
        assert b.read(e).shape == (1000,)


def test_transfers_of_the_general_path_count(fake):
    with trueno.Batch("fake") as b:
        h = b.softmax(b.upload(np.ones((3, 4), F)), axis=0)
        b.execute()
        b.read(h)
        ledger = fake.LEDGER
        assert (b.counts.uploads, b.counts.downloads) == (ledger.uploads, ledger.downloads) != (1, 1)


@pytest.mark.parametrize("backend", ["reference", "fake"])
def test_copies_are_the_batchs_and_arrays_are_borrowed(fake, backend):
    x = np.ones((10, 10), F)
    with trueno.Batch(backend) as b:
        b.upload(x if backend == "reference" else trueno.to(x, "fake"))
        assert b.counts.peak_bytes == b.counts.allocations == 0
        h = b.upload(x.T[::2])
        assert b.counts.peak_bytes == 200 and b.counts.allocations == 1
        for _ in range(3):
            b.update(h, x.T[::2])
        assert b.counts.peak_bytes == (200 if backend == "fake" else 400)  # the old one goes when the new one is there


def test_from_the_second_execution_on_a_recording_runs(fake):
    x = np.linspace(-2, 2, 100, dtype=F).reshape(10, 10)
    with trueno.Batch("fake") as b:
        y = b.softmax(b.transpose(b.upload(x)))
        for turn in range(4):
            b.execute()
            assert fake.LEDGER.replays == turn
            assert b.counts.kernels == fake.LEDGER.kernels == 2 * (turn + 1)
            assert b.counts.submits == fake.LEDGER.submits == turn + 1
        np.testing.assert_allclose(b.read(y), trueno.softmax(np.ascontiguousarray(x.T)), rtol=1e-6)


def test_an_index_that_lives_on_a_device_is_recorded(fake):
    """The device's kernel takes what the host cannot check; an op whose operands are all checked runs on the host."""
    table = np.arange(12, dtype=F).reshape(4, 3)
    with trueno.Batch("fake") as b:
        i = b.upload(np.array([3, 0]))
        rows = b.embedding_lookup(b.upload(table), i)
        for turn in range(3):
            b.update(i, np.array([turn, 2]))
            b.execute()
            assert b.read(rows).tolist() == table[[turn, 2]].tolist()
        assert fake.LEDGER.replays == 2 and (b.counts.uploads, b.counts.downloads) == (5, 3)
        assert "general path" not in str(b)
        values, _ = b.symmetric_eigen(b.upload(np.eye(3, dtype=F)))
        b.execute()
        assert b.read(values).tolist() == [1, 1, 1] and "the host checks its operands' values" in str(b)


def test_a_recording_reads_what_was_uploaded_last(fake):
    with trueno.Batch("fake") as b:
        h = b.upload(np.ones(8, F))
        y = b.scale(h, 3.0)
        for turn in range(4):
            b.update(h, np.full(8, turn, F))
            b.execute()
            assert b.read(y).tolist() == [3.0 * turn] * 8
        assert fake.LEDGER.replays == 3
        b.update(h, trueno.to(np.full(8, 9, F), "fake"))  # another array: what was recorded reads the old one
        b.execute()
        assert b.read(y).tolist() == [27.0] * 8 and fake.LEDGER.replays == 3
        b.execute()
        assert b.read(y).tolist() == [27.0] * 8 and fake.LEDGER.replays == 4


@pytest.mark.parametrize("watch", ["traced", "guarded"])
def test_who_looks_at_single_kernels_gets_no_recording(fake, watch):
    with trueno.Batch("fake") as b:
        y = b.exp(b.upload(np.ones(8, F)))
        with trueno.trace() if watch == "traced" else trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP):
            for _ in range(3):
                b.execute()
        assert fake.LEDGER.replays == 0
        b.read(y)


def test_a_kernel_that_refuses_is_not_recorded(fake):
    with trueno.Batch("fake") as b:
        y = b.exp(b.upload(np.ones(8, F)))
        b.execute()
        replay = b._replay
        kernel, args = replay._calls[0]
        replay._calls[0] = (lambda *a: -1, args)
        b.execute()  # the next candidate takes the call
        assert fake.LEDGER.replays == 0 and replay._recorded is None
        replay._calls[0] = (kernel, args)
        b.execute()
        assert fake.LEDGER.replays == 0
        assert b.read(y)[0] == pytest.approx(np.e)


def test_an_error_in_a_replay_names_the_ops(fake):
    with trueno.Batch("fake") as b:
        y = b.matmul(b.upload(np.eye(3, dtype=F)), b.upload(np.eye(3, dtype=F)))
        for _ in range(2):
            b.execute()
        fake.control.fail(1, kind="kernel")
        with pytest.raises(trueno.TruenoError) as caught:
            b.execute()
        assert "matmul" in "".join(caught.value.__notes__)
        b.execute()
        np.testing.assert_array_equal(b.read(y), np.eye(3))
