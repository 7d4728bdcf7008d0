"""`trueno.backend.KernelTable`: a backend's structured kernels, each with its facts beside it."""

import numpy as np
import pytest
from trueno.backend import TABLE, Call, KernelTable, Member, Rates, Reject, SharedOp, TableKernel
from trueno.batch.shared import shared

RATES = Rates(1e-6, 1e9, 2e9)


class Fused:
    """A structured op with something after it, as a batch makes them."""

    name = "matmul_relu"
    table_op = TABLE["matmul"]


def call(op, dtype="float32", *, guarded=False):
    op = TABLE[op] if isinstance(op, str) else op
    return Call(op, np.dtype(dtype), "ee", 2, (4, 4), guarded=guarded)


def made(device, call):
    return lambda *arrays: (device, call.op.name, len(arrays))


def test_a_row_makes_kernels_and_has_its_facts_beside_it():
    kernels = KernelTable("float32", "float64")
    assert kernels.add("matmul", "outer", rates=RATES)(made) is made
    assert list(kernels) == ["matmul", "outer"] and len(kernels) == 2 and "matmul" in kernels
    row = kernels["outer"]
    assert row == TableKernel("outer", made, RATES, ("float32", "float64"), False, None)
    assert row("gpu", call("outer"))(1, 2) == ("gpu", "outer", 2)
    assert kernels.kernel(call("matmul"), "gpu")() == ("gpu", "matmul", 0)
    assert kernels.kernel(call("matmul"))() == (None, "matmul", 0)
    assert kernels.rates(call("matmul")) is RATES


def test_it_says_why_no_kernel_takes_a_key():
    kernels = KernelTable("float32")
    kernels.add("matmul", rates=RATES, guarded=True)(made)
    kernels.add("outer", rates=RATES, dtypes=("float32", "float16"), refusal=lambda c: Reject("unsupported_op", "odd"))(
        made
    )
    assert kernels.refusal(call("matmul")) is None
    assert kernels.refusal(call("matmul", guarded=True)) is None
    assert kernels.refusal(call("transpose")) == Reject("unsupported_op", "no kernel for transpose")
    refused = kernels.refusal(call("matmul", "float64"))
    assert refused == Reject("unsupported_dtype", "float64: matmul computes in float32")
    assert kernels.refusal(call("outer", "float64")).detail == "float64: outer computes in float32 or float16"
    assert kernels.refusal(call("outer", guarded=True)) == Reject("unguarded", "outer has no guarded kernel")
    assert kernels.refusal(call("outer", "float16")) == Reject("unsupported_op", "odd")


def test_an_epilogue_is_asked_about_by_itself():
    plain, fused = KernelTable("float32"), KernelTable("float32", epilogue=lambda c: reason.pop())
    for kernels in (plain, fused):
        kernels.add("matmul", rates=RATES)(made)
    reason = [None, "too long"]
    assert plain.refusal(call(Fused)) == Reject("unsupported_op", "no kernel has an epilogue")
    assert fused.refusal(call(Fused)) == Reject("unsupported_op", "too long")
    assert fused.refusal(call(Fused)) is None
    assert fused.kernel(call(Fused), "gpu")() == ("gpu", "matmul_relu", 0) and fused.rates(call(Fused)) is RATES


def test_ops_of_one_operand_are_asked_about_by_themselves():
    op = TABLE["quant_matvec"]
    static = (("format", "q8_0"), ("activations", "q8"))
    pair = tuple(Member(op, static, (("operand", i), ("operand", 0))) for i in (1, 2))
    several = shared(pair, ((0, 0), (1, 0)), "0")
    reason = ["not together", None]
    epilogues = KernelTable("float32", epilogue=lambda c: None)
    together = KernelTable("float32", epilogue=lambda c: "never asked", shared=lambda c: reason.pop(0))
    for kernels in (epilogues, together):
        kernels.add("quant_matvec", rates=RATES)(made)
    assert isinstance(several, SharedOp)
    assert epilogues.refusal(call(several)) == Reject("unsupported_op", "no kernel runs several ops of one operand")
    assert together.refusal(call(several)) == Reject("unsupported_op", "not together")
    assert together.refusal(call(several)) is None and together.rates(call(several)) is RATES
    norm = Member(TABLE["rms_norm"], (), (("operand", 0), ("operand", 1)))
    normed = shared((norm, Member(op, static, (("operand", 2), ("result", 0)))), ((1, 0),), "1")
    assert together.refusal(call(normed)) == Reject("unsupported_op", "no kernel begins with a norm")
    first = KernelTable("float32", normed=lambda c: None)
    first.add("quant_matvec", rates=RATES)(made)
    assert normed.table_op is op and first.refusal(call(normed)) is None
    more = Member(op, static, (("operand", 3), ("result", 0)))
    sizes = shared((*normed.members, more), ((1, 0), (2, 0)), "2").signature.outputs
    assert [spec.dims for spec in sizes] == [("n1",), ("n2",)], "products of one norm have heights of their own"


@pytest.mark.parametrize("rates", [None, 3.0, (1e-6, 1e9, 1e9)])
def test_a_kernel_without_rates_is_an_error_where_it_is_declared(rates):
    with pytest.raises(TypeError, match=r"'matmul'.*rates=Rates"):
        KernelTable("float32").add("matmul", rates=rates)
    with pytest.raises(TypeError):
        KernelTable("float32").add("matmul")
    with pytest.raises(TypeError, match="name an op"):
        KernelTable("float32").add(rates=RATES)


def test_names_that_do_not_exist_are_errors_where_they_are_declared():
    with pytest.raises(ValueError, match=r"'transpos'.*did you mean \"transpose\""):
        KernelTable("float32").add("transpos", rates=RATES)
    with pytest.raises(ValueError, match=r"'flaot64'.*float64"):
        KernelTable("flaot64")
    for wrong in (("float32", "int8"), "float64"):
        with pytest.raises(ValueError, match="give a tuple of names"):
            KernelTable("float32").add("outer", rates=RATES, dtypes=wrong)


def test_an_op_has_one_kernel_and_a_table_its_dtypes():
    kernels = KernelTable("float32")
    kernels.add("matmul", rates=RATES)(made)
    with pytest.raises(ValueError, match=r"'matmul'.*already"):
        kernels.add("matmul", rates=RATES)(made)
    with pytest.raises(TypeError, match="dtypes"):
        KernelTable()
