"""The path of a call: what runs between the public function and the kernel, once a plan is made."""

import gc
import re
import sys
from collections.abc import Callable
from types import CodeType, FrameType

import numpy as np
import pytest
import trueno
from trueno.dispatch.state import current


def steps(call: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Names of the Python functions and of the built-in ones that a call runs through."""
    codes, builtin = profiled(call)
    return [code.co_name for code in codes], builtin


def profiled(call: Callable[[], object]) -> tuple[list[CodeType], list[str]]:
    """The code of the Python functions, and the names of the built-in ones."""
    python: list[CodeType] = []
    builtin: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            python.append(frame.f_code)
        elif event == "c_call":
            builtin.append(getattr(arg, "__qualname__", str(arg)))

    call()
    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # a collection calls whoever listens to it (hypothesis does) in the middle of what is counted
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return python, builtin


@pytest.mark.usefixtures("python_functions")
@pytest.mark.parametrize("backend", ["simd", "scalar", "reference"])
@pytest.mark.parametrize("op", ["add", "softmax", "sum", "matmul"])
def test_a_warm_call_takes_no_lock_and_asks_nobody(op: str, backend: str) -> None:
    if not trueno.backends()[backend].available:
        pytest.skip(f"{backend} is not available here")
    x = np.ones((8, 8), np.float32)
    operands = (x, x) if op in ("add", "matmul") else (x,)
    out = np.empty(8 if op == "sum" else (8, 8), np.float32)
    with trueno.use(backend):
        function, kernel = getattr(trueno, op), getattr(trueno, op).plan(*operands)
        python, builtin = steps(lambda: function(*operands, out=out))
        own, _ = steps(lambda: kernel(*operands, out))
    assert python[:2] == ["<lambda>", op]
    assert python[2:] == own[1:], "between the public function and the kernel runs no Python function"
    assert not [name for name in builtin if "lock" in name.lower() or name.endswith(("acquire", "__enter__"))]


@pytest.mark.usefixtures("python_functions")
def test_a_warm_broadcast_is_few_calls_in_few_files() -> None:
    """What the fast path does not take goes to its kernel as directly, once it has been called twice."""
    if not trueno.backends()["simd"].available:
        pytest.skip("simd is not available here")
    x, bias = np.ones((1024, 1024), np.float32), np.ones(1024, np.float32)
    with trueno.use("simd"):
        trueno.add(x, bias)
        python, _ = profiled(lambda: trueno.add(x, bias))
    assert len(python) <= 12, [code.co_name for code in python]
    kernel = r"k_add_float32_\w+\.py$"  # Numba tells a profiler of a compiled function as of a Python one
    files = {code.co_filename for code in python} - {__file__}
    files = {file for file in files if not re.search(kernel, file)}
    assert len(files) <= 4, files


@pytest.mark.usefixtures("python_functions")
def test_a_warm_call_into_out_asks_no_shapes() -> None:
    """Where only the op can tell a result's shape, a call with out= still finds its kernel at once."""
    if not trueno.backends()["simd"].available:
        pytest.skip("simd is not available here")
    x = np.ones((2, 32), np.float32)
    q, image = trueno.quantize(x, "q8_0"), np.ones((8, 8), np.float32)
    with trueno.use("simd"):
        for call, seen in (
            (lambda: trueno.dequantize(q.bytes, format="q8_0", out=x), "dequantize"),
            (lambda: trueno.convolve2d(image, image[:3, :3].copy(), out=image[:6, :6].copy()), "convolve2d"),
        ):
            python, _ = steps(call)
            assert python[:2] == ["<lambda>", seen]
            assert not {"call", "result_shapes", "coerce"} & set(python[2:])


def test_a_warm_call_of_an_op_that_checks_values_runs_the_check_and_the_kernel() -> None:
    """The check is all that is added; what it refuses, the general path raises, with nothing written."""
    if not trueno.backends()["simd"].available:
        pytest.skip("simd is not available here")
    table, i = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, 0])
    out = np.empty((2, 3), np.float32)
    with trueno.use("simd"):
        python, _ = steps(lambda: trueno.embedding_lookup(table, i, out=out))
        assert python[:3] == ["<lambda>", "embedding_lookup", "_indexed"] and "call" not in python
        np.testing.assert_array_equal(out, table[[3, 0]])
        out.fill(7)
        for wrong in (-1, 4):
            with pytest.raises(trueno.errors.ParameterError, match=rf"i\[1\] is {wrong}"):
                trueno.embedding_lookup(table, np.array([0, wrong]), out=out)
        assert (out == 7).all()
        with pytest.raises(trueno.errors.ShapeError):
            trueno.symmetric_eigen(np.ones((100_000, 1), np.float32))
        with pytest.raises(trueno.errors.ParameterError, match="not symmetric"):
            trueno.symmetric_eigen(np.array([[1, 2], [3, 4]], np.float32))


def test_contexts_keep_their_tables() -> None:
    """Entering a context again finds its plans warm; leaving one in the wrong order restores nothing by accident."""
    x = np.ones(8, np.float32)
    with trueno.use("reference"):
        first = current.get()
        trueno.add(x, x)
        table = first.f4_add
    with trueno.use("reference"):
        assert current.get() is first and first.f4_add is table
    with trueno.use("reference"), trueno.use():
        assert current.get().request.names == ()


def test_a_default_is_for_every_thread() -> None:
    from threading import Thread

    seen: list[str] = []
    trueno.set_default("reference")
    try:
        thread = Thread(target=lambda: seen.append(trueno.explain(trueno.add, [1.0], [1.0]).chosen))
        thread.start()
        thread.join()
    finally:
        trueno.set_default()
    assert seen == ["reference"]


def test_structured_plans_know_every_operand() -> None:
    """A plan for a product of matrices is not one for its first matrix alone."""
    a = np.ones((16, 16), np.float32)
    wide = np.ones((16, 4096), np.float32)
    with trueno.use("reference"):
        call = trueno.explain(trueno.matmul, a, wide).call
    assert call.sizes == (9, 17)


def test_settings_from_code_win_and_are_told() -> None:
    settings = trueno.settings
    assert settings.origin("TRUENO_FALLBACK").origin in ("default", "environment TRUENO_FALLBACK")
    settings.override("TRUENO_FALLBACK", "error")
    try:
        assert settings.origin("TRUENO_FALLBACK") == settings.settings.origin("TRUENO_FALLBACK")
        assert settings.get("TRUENO_FALLBACK") == "error" and settings.origin("TRUENO_FALLBACK").origin == "code"
        with pytest.raises(trueno.SettingError, match="one of error warn log silent"):
            settings.override("TRUENO_FALLBACK", "shout")
        with pytest.raises(trueno.SettingError, match="one of error"):
            settings.override("TRUENO_FALLBACK", 5)
        assert settings.get("TRUENO_FALLBACK") == "error"
        settings.override("TRUENO_BLOCK", ("fake", "other"))
        assert settings.get("TRUENO_BLOCK") == ("fake", "other")
    finally:
        settings.override("TRUENO_FALLBACK", None)
        settings.override("TRUENO_BLOCK", None)
    with pytest.raises(trueno.SettingError, match="there is no setting TRUENO_FALBACK"):
        settings.override("TRUENO_FALBACK", "error")
