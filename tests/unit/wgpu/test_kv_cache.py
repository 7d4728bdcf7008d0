"""`trueno.KVCache` with its pages on the GPU, against one on the host; and a decode step recorded there."""

import numpy as np
import pytest
import trueno


def rows(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "q8_0"])
def test_it_holds_and_gives_what_one_on_the_host_does(chosen, dtype):
    """Forks that write to shared pages, and single tokens recorded once: the same numbers in both."""
    rng = np.random.default_rng(1)
    how = {"dtype": dtype, "capacity": 40, "sequences": 3, "page": 8}
    here, there = (trueno.KVCache(2, 2, 32, device=name, **how) for name in ("", "wgpu"))
    assert there.device == "wgpu"
    inputs = [np.zeros((2, heads, 32), np.float32) for heads in (6, 2, 2)]
    first = here.new()
    assert there.new() == first
    k, v, q = (rows(rng, 13, heads, 32) for heads in (2, 2, 6))
    for layer in range(2):
        with trueno.use("scalar"):
            here.append(layer, k, v, first)
            want = here.attend(layer, q, first)
        there.append(layer, trueno.to(k, "wgpu"), trueno.to(v, "wgpu"), first)
        y = trueno.numpy(there.attend(layer, trueno.to(q, "wgpu"), first))
        np.testing.assert_allclose(y, want, rtol=0, atol=1e-5)
    pair = [first, here.fork(first)]
    assert there.fork(first) == pair[1]
    with trueno.Batch("wgpu") as b:
        step = there.record(b, 2)
        handles = [b.upload(x) for x in inputs]
        turned = b.rope(handles[0], step.positions)
        ys = [b.keep(step.attend(layer, turned, *handles[1:])) for layer in range(2)]
        for _ in range(5):
            for handle, x in zip(handles, inputs, strict=True):
                x[...] = rows(rng, *x.shape)
                b.update(handle, x)
            with trueno.use("scalar"):
                q = trueno.rope(inputs[0], here.lengths(pair))
                step.run(pair)
                for layer, y in enumerate(ys):
                    here.append(layer, *(x[:, None] for x in inputs[1:]), pair)
                    want = here.attend(layer, q[:, None], pair)[:, 0]
                    np.testing.assert_allclose(b.read(y), want, rtol=0, atol=1e-5)
    for sequence in pair:
        for x, want in zip(there.read(1, sequence), here.read(1, sequence), strict=True):
            np.testing.assert_array_equal(x, want)
    assert there.used == here.used
