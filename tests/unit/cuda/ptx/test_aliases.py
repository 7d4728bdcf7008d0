"""An unknown name says what is meant: names of CUDA C, Triton and Numba, and near misses."""

import inspect
import re

import pytest
from trueno_cuda.ptx import Array, Builder, BuildError, Pointer, Value, Var, f32, kernel, ptr, u32
from trueno_cuda.ptx.aliases import KERNEL, POINTER, VALUE
from trueno_cuda.ptx.asynchronous import Mbarrier
from trueno_cuda.ptx.control import Loop
from trueno_cuda.ptx.instructions import CLOCKS, INSTRUCTIONS, SPECIAL_REGISTERS, STATEMENTS
from trueno_cuda.ptx.reference_topics import MEMBERS, TOPICS


def said(use) -> str:
    """The error of a kernel that does this to k, a pointer and a number."""

    @kernel(threads=64)
    def one(k, x: ptr(f32), n: u32):
        use(k, x, n)

    with pytest.raises(BuildError) as caught:
        one.build()
    assert isinstance(caught.value, AttributeError), "hasattr and getattr with a default want one"
    return str(caught.value)


@pytest.mark.parametrize(
    "name, meant",
    [
        ("threadIdx", "k.tid"), ("blockIdx", "k.ctaid"), ("blockDim", "k.threads"), ("gridDim", "k.nctaid"),
        ("syncthreads", "k.sync()"), ("__syncthreads", "k.sync()"), ("sync_threads", "k.sync()"),
        ("log", "k.log2(x) * 0.693147"), ("ln", "k.log2(x) * 0.693147"), ("exp", "k.exp2(x * 1.442695"),
        ("pow", "k.exp2(y * k.log2(x))"), ("laneid", "k.lane"), ("warp_id", "k.warp"), ("where", "k.select(c, a, b)"),
        ("atomicAdd", 'x.atomic("add", i, v)'), ("shfl_down_sync", 'k.shuffle(x, "down", 1)'), ("tid_x", "k.tid"),
        ("if_", "with k.when(c):"), ("while_", "leave_if"), ("program_id", "k.ctaid"), ("printf", "cannot print"),
        ("expf", "k.exp2(x * 1.442695"), ("__expf", "k.exp2(x * 1.442695"), ("logf", "k.log2(x) * 0.693147"),
        ("powf", "k.exp2(y * k.log2(x))"), ("sinf", "k.sin(x)"), ("cosf", "k.cos(x)"), ("tanhf", "k.tanh(x)"),
        ("fabsf", "k.abs(x)"), ("fmaxf", "k.max(a, b)"), ("fminf", "k.min(a, b)"), ("sqrtf", "k.sqrt(x)"),
        ("rsqrtf", "k.rsqrt(x)"),
        ("sqr", 'did you mean "sqrt"'), ("block_summ", 'did you mean "block_sum"'), ("synch", 'did you mean "sync"'),
    ],
)  # fmt: skip
def test_a_guess_at_the_kernel_is_answered(name, meant):
    message = said(lambda k, x, n: getattr(k, name))
    assert message.startswith(f"k.{name}: no PTX operation has this name; ") and meant in message


def test_what_nobody_could_mean_gets_no_hint():
    assert said(lambda k, x, n: k.qqqqqq) == "k.qqqqqq: no PTX operation has this name"


@pytest.mark.parametrize("axis", ["tid", "ctaid", "ntid", "nctaid"])
def test_axes_are_names_of_their_own(axis):
    for letter, meant in (("x", axis), ("y", f"{axis}_y"), ("z", f"{axis}_z")):
        message = said(lambda k, x, n, letter=letter: getattr(getattr(k, axis), letter))
        assert message == f"k.{axis}.{letter}: k.{axis} is a number, along x; the name is k.{meant}"


@pytest.mark.parametrize(
    "name, meant",
    [("astype", "x.to(u32)"), ("sqrt", "k.sqrt(x)"), ("set", "k.var(u32, 0)"), ("y", "a Value has no 'y'"),
     ("block_sum", "k.block_sum(x)"), ("load", "ptr(f32)"), ("bit", 'did you mean "bits"')],
)  # fmt: skip
def test_a_guess_at_a_value_is_answered(name, meant):
    assert meant in said(lambda k, x, n: getattr(n, name))


@pytest.mark.parametrize(
    "name, meant",
    [("ld", "load(i)"), ("atomic_add", 'atomic("add", i, v)'), ("shape", "n: u32"), ("stor", 'did you mean "store"')],
)
def test_a_guess_at_a_pointer_is_answered(name, meant):
    message = said(lambda k, x, n: getattr(x, name))
    assert message.startswith(f"x.{name}: a pointer has no {name!r}; ") and meant in message


def test_python_itself_may_ask():
    """copy, hasattr and the like look for names that are not there."""

    @kernel(threads=64)
    def one(k, x: ptr(f32), n: u32):
        for thing in (k, x, n):
            assert not hasattr(thing, "__array_interface__") and not hasattr(thing, "_ipython_display_")
            assert getattr(thing, "nothing_of_that_name", 7) == 7

    one.build()


def test_the_hints_name_what_exists():
    known = {*INSTRUCTIONS, *SPECIAL_REGISTERS, *CLOCKS, *STATEMENTS, *MEMBERS}
    for table in (KERNEL, VALUE):
        for guess, text in table.items():
            assert guess == guess.lower() and "_" not in guess
            for name in re.findall(r"\bk\.(\w+)", text):
                assert name in known, text
    for text in POINTER.values():
        for name in re.findall(r"(\w+)\(\w", text):
            assert hasattr(Pointer, name), text
    assert not known & set(KERNEL), "a name that exists is not a guess"


# ------------------------------------------------------------------------------------- the topics hold everything

CLASSES = {
    "k": Builder,
    "pointer": Pointer,
    "array": Array,
    "value": Value,
    "var": Var,
    "barrier": Mbarrier,
    "loop": Loop,
}
INSIDE = {
    "address", "apply", "assign", "atomic", "bind", "builder", "close", "condition", "constant", "context", "convert",
    "emit", "flat", "guard", "in_bounds", "label", "lay_out", "load", "need", "new", "new_var", "operand", "params",
    "place", "place_of", "read", "register", "reinterpret", "statement", "store", "writes",
}  # fmt: skip
"""What the parts of the builder say to each other."""


def test_every_member_has_a_topic_and_words():
    listed = {name for topic in TOPICS for name in topic.members}
    for owner, kind in CLASSES.items():
        for name in {n for c in kind.__mro__[:-1] for n in vars(c)} if owner == "k" else vars(kind):
            member = inspect.getattr_static(kind, name)
            if name.startswith("_") or not (callable(member) or isinstance(member, property)):
                continue
            if owner == "k" and name in INSIDE:
                continue
            assert f"{owner}.{name}" in listed, name
            assert inspect.getdoc(member), f"{owner}.{name} has no docstring"
    for name in listed:
        owner, _, member = name.partition(".")
        assert hasattr(CLASSES[owner], member), name
