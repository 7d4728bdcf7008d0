"""PyTorch tensors on a GPU: the same rules, on PyTorch's current stream."""

import numpy as np
import pytest
import trueno
from trueno.errors import DeviceError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
    pytest.mark.skipif("cuda" not in trueno.backends(), reason="trueno-cuda is not installed"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_results_stay_on_the_gpu(dtype, rng):
    host = torch.from_numpy(rng.standard_normal((5, 64))).to(dtype)
    for x in (host.cuda(), host.cuda().T):
        y = trueno.relu(x)
        assert type(y) is torch.Tensor and y.device == x.device and torch.equal(y, torch.relu(x))
        out = torch.empty_like(y)
        address = out.data_ptr()
        assert trueno.add(x, x, out=out) is out and out.data_ptr() == address and torch.equal(out, x + x)


def test_calls_run_on_pytorchs_current_stream(rng):
    x = torch.from_numpy(rng.standard_normal(1 << 22).astype(np.float32)).cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = x
        for _ in range(50):
            y = trueno.add(trueno.neg(y * 1.0), 1.0)
        total = (y - x).abs().max()
    stream.synchronize()
    assert float(total) < 1e-4


def test_two_places_are_an_error(rng):
    x = torch.from_numpy(rng.standard_normal(8))
    with pytest.raises(DeviceError, match=r"add: y is on the host, but x is on cuda"):
        trueno.add(x.cuda(), x)


def test_operators_on_the_gpu(rng):
    import trueno.torch  # noqa: F401

    x = torch.from_numpy(rng.standard_normal((5, 64)).astype(np.float32)).cuda()
    compiled = torch.compile(lambda t: torch.ops.trueno.softmax(t) * 2, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), torch.softmax(x, -1) * 2)
