"""The public functions: resolve once, then call the kernel directly.

Each op's function is generated with the op's signature.  Its fast path reads a key from the first operand,
finds the bare kernel in the current state's plans, allocates, calls, and compares the result with 0: two
Python frames.  A call that the kernel refuses, that fails a condition of the fast path, or that raises an exception
goes to `trueno.dispatch.call`, which validates, broadcasts, compacts and copies operands, and raises errors that
explain; a kernel that raises there as well has failed.

Where a backend compiles entries (`trueno.door`), one stands in front of the function and does what the fast path does;
every call that it does not know runs the function.
"""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import numpy as np

from trueno.border import NAMES, describe, ending, refusal
from trueno.discovery.protocol import Backend, Refused
from trueno.dispatch import plan
from trueno.dispatch.asking import use
from trueno.dispatch.call import ENTRANCES
from trueno.dispatch.coerce import plain, unfit, unpack, unpacked
from trueno.dispatch.fallback import passes
from trueno.dispatch.parameters import parameters
from trueno.dispatch.state import DTYPES, current, on_code, refuse
from trueno.errors import DtypeError, ParameterError, ShapeError
from trueno.firstuse import importing
from trueno.floatenv import ieee
from trueno.interop.calls import FAST, FUNCTIONS, bare, short_way
from trueno.ops import ALIASES, TABLE
from trueno.ops.op import Op, Parameter
from trueno.ops.signature import ArraySpec
from trueno.settings import settings


def _declaration(p: inspect.Parameter) -> str:
    return p.name if p.default is p.empty else f"{p.name}={p.default!r}"


def _shape(op: Op, spec: ArraySpec) -> str:
    """The source of a result's shape: from the operands' shapes, or else from the op, which takes some microseconds."""
    first = op.signature.inputs[0]
    shapes = ", ".join(f"{name}.shape" for name in op.operands)
    static = ", ".join(f"{p.name!r}: {p.name}" for p in op.static)
    asked = f"_op.result_shapes(({shapes},), {{{static}}})[{op.signature.outputs.index(spec)}]"
    if op.shapes is not None or spec.blocks:
        return asked
    if spec.leading and spec.dims == first.dims:
        return f"{first.name}.shape"
    parts = []
    for symbol in spec.dims:
        # The shape uses the number of bytes of a row of blocks unchecked; kernels verify the number of elements.
        owner = next((s for s in op.signature.inputs if symbol in (s.dims[:-1] if s.blocks else s.dims)), None)
        if owner is None and any(p.name == symbol for p in op.static):
            parts.append(symbol)  # kernels check parameters against extents
            continue
        if owner is None:
            return asked
        parts.append(f"{owner.name}.shape[{owner.dims.index(symbol) - len(owner.dims)}]")
    inner = f"({', '.join(parts)},)" if parts else "()"
    if not spec.leading:
        return inner
    lead = next(s for s in op.signature.inputs if s.leading)
    cut = f"{lead.name}.shape[:-{len(lead.dims)}]" if lead.dims else f"{lead.name}.shape"
    return f"{cut} + {inner}" if parts else cut


def _parameters(op: Op) -> list[str]:
    """The conditions on parameters: a float is the default, or a number that satisfies every rule about it."""
    conditions = []
    joint = [rule for rule in op.rules if sum(n in rule.split() for n in op.symbolic) != 1]
    for p in op.params:
        if not p.symbolic:
            continue
        own = [f"({rule})" for rule in op.rules if p.name in rule.split() and rule not in joint]
        condition = " and ".join([f"({p.name}.__class__ is float or {p.name}.__class__ is int)", *own])
        conditions.append(f"({condition})" if p.required else f"({p.name} is _default_{p.name} or {condition})")
    # True, 1 and 1.0 are one key of the plans
    conditions += [f"{p.name}.__class__ is {p.type.__name__}" for p in op.static if p.type is not str]
    return conditions + [f"({rule})" for rule in joint]


def source(op: Op) -> str:
    """The Python source of an op's public function."""
    listed = parameters(op)
    positional = [_declaration(p) for p in listed if p.kind is not p.KEYWORD_ONLY]
    keyword = [_declaration(p) for p in listed if p.kind is p.KEYWORD_ONLY]
    inputs = op.signature.inputs
    first = inputs[0].name
    x = next((s.name for s in inputs if not s.type), None)  # the operand whose dtype is the call's
    static = "".join(f"[{p.name}]" for p in op.static)
    classes = "".join(f"[{name}.size.bit_length()]" for name in op.operands[: plan.keys(op)])
    key = f"{static}[{first}.ndim]{classes}"
    outputs = op.signature.outputs
    names = [f"_out{k}" for k in range(len(outputs))]
    call = ", ".join([*op.operands, *op.symbolic, *names])
    extra = [] if op.structured else [p.name for p in listed if p.name in ("axis", "keepdims")]

    # A masked array would lose its mask, and Numba identifies arrays of other classes by a fingerprint without byte
    # order: so this compares class and dtype by identity, which costs a few nanoseconds each.
    def plain(name: str, spec: ArraySpec) -> str:
        return f"{name}.__class__ is _ndarray" + (f" and {name}.dtype is {dtypes[spec.type]}" if name != x else "")

    dtypes = {"": "_dtype", "index": "_int64", **dict.fromkeys(("blocks", "cache", "bytes"), "_uint8")}
    conditions = ["not _more and not _other", *(plain(spec.name, spec) for spec in inputs)]
    # A parameter that is not passed is the default itself, which is valid: one comparison by identity.
    conditions += ["axis is _axis"] if "axis" in extra else []
    conditions += ["keepdims is False"] if "keepdims" in extra else []
    conditions += _parameters(op)
    # An error of the check is raised by the general path, whose operands it may also be about.
    checked = ", ".join([*op.operands, *(f"{name}={name}" for name in op.checked)])
    conditions += [f"_check({checked}) is None"] if op.check is not None else []
    scalars = "".join(f"{n!r}: {n}, " for n in (*op.symbolic, *(p.name for p in op.static), *extra))
    lines = [f"def {op.name}({', '.join([*positional, '*_more', *keyword, '**_other'])}):"]
    lines += ["    _user = out"] if op.updates else []
    for spec in inputs:
        if spec.blocks:  # a QuantizedMatrix knows its format
            floats = f" or {spec.name}.dtype is not _uint8" if spec.cache else ""
            lines.append(f"    if {spec.name}.__class__ is not _ndarray{floats}:")
            if op.updates and spec is inputs[0]:  # in place: what holds for the operand's bytes holds for those of out
                lines.append(f"        _same = out is {spec.name}")
                lines.append(f"        {spec.name}, format = _blocks(_op, {spec.name!r}, {spec.name}, format)")
                view = "(out.__class__ is not _ndarray or out.strides[-1] == out.itemsize)"  # and no copy; or Pages
                lines.append(f"        if _same and {spec.name}.__class__ is _ndarray and {view}:")
                lines.append(f"            out = {spec.name}")
            else:
                lines.append(f"        {spec.name}, format = _blocks(_op, {spec.name!r}, {spec.name}, format)")
    pad = "            "
    lines += [
        "    try:",
        f"        _dtype = {f'{x}.dtype' if x else '_f4'}",
        f"        if {' and '.join(conditions)}:",
    ]
    lines += [f"{pad}if _dtype is _f4:", f"{pad}    _kernel = _state().f4_{op.name}{key}"]
    if not op.single:
        lines += [f"{pad}elif _dtype is _f8:", f"{pad}    _kernel = _state().f8_{op.name}{key}"]
    lines += [f"{pad}else:", f"{pad}    _kernel = _refuse"]
    lines.append(f"{pad}if out is None:")
    for name, spec in zip(names, outputs, strict=True):
        lines.append(f"{pad}    {name} = _empty({_shape(op, spec)}, {dtypes[spec.type]})")
    if len(names) == 1:
        scalar = op.reduces and not op.structured
        result = f"{names[0]} if {names[0]}.ndim else {names[0]}[()]" if scalar else names[0]
        lines += [f"{pad}    if not _kernel({call}):", f"{pad}        return {result}"]
        fragment = ", ".join([*op.operands, *op.symbolic, "out"])
        lines.append(f"{pad}elif {plain('out', outputs[0])} and not _kernel({fragment}):")
        lines.append(f"{pad}    return {'_user' if op.updates else 'out'}")
    else:
        lines += [f"{pad}else:", f"{pad}    {', '.join(names)} = out"]
        fragment = " and ".join(plain(name, spec) for name, spec in zip(names, outputs, strict=True))
        lines += [f"{pad}if {fragment} and not _kernel({call}):", f"{pad}    return {', '.join(names)}"]
    lines += ["    except _Refused:", "        pass"]  # the kernel itself refused: there is no error to check
    lines += ["    except BaseException as _error:", "        if _passes(_error):", "            raise"]

    def returned(pad: str, result: str) -> list[str]:  # of an update in place, what the caller passed as out
        if not op.updates:
            return [f"{pad}return {result}"]
        return [f"{pad}_result = {result}", f"{pad}return _result if out is _user else _user"]

    lines += refusal()
    # Indices in int32 are converted here: the general path would take a hundred microseconds more.
    same = {p.name: p.name for p in listed}
    for spec in inputs:
        if spec.index:
            again = ", ".join(f"{name}={value}" for name, value in (same | {spec.name: "_wide"}).items())
            lines.append(f"    if {spec.name}.__class__ is _ndarray and {spec.name}.dtype is _int32:")
            lines.append(f"        _wide = {spec.name}.astype(_int64)")
            lines += returned("        ", f"{op.name}({again})")
    lines += short_way(op, [p.name for p in listed if p.name not in (*op.operands, "out")])
    passed = f"({', '.join(op.operands)},), {{{scalars}}}, out"
    lines += ending(op.name, passed, returned, along="axis" in extra)
    return "\n".join(lines) + "\n"


def build(op: Op) -> Callable[..., Any]:
    """The public function of an op."""
    namespace: dict[str, Any] = {
        "_state": current.get,
        "_empty": np.empty,
        "_ndarray": np.ndarray,
        "_f4": DTYPES["f4"],
        "_f8": DTYPES["f8"],
        "_int64": np.dtype(np.int64),
        "_int32": np.dtype(np.int32),
        "_uint8": np.dtype(np.uint8),
        "_blocks": unpacked,
        "_refuse": refuse,
        "_general": ENTRANCES[len(op.operands)],
        "_Refused": Refused,
        "_FAST": FAST,
        "_op": op,
        "_passes": passes,
        "_axis": -1,
        "_check": op.check,
        **{f"_default_{p.name}": p.default for p in op.params if p.symbolic},
        **NAMES,
    }
    exec(compile(source(op), f"<trueno.{op.name}>", "exec"), namespace)
    function: Any = namespace[op.name]
    describe(op, function)
    function.op = op
    function.plan = _planner(op)
    return _joining(op, function) if op.many else function


def _joining(op: Op, pair: Callable[..., Any]) -> Callable[..., Any]:
    """The function of an op of two operands for any number of them, or a list of them."""
    names = op.operands

    @wraps(pair)
    def joined(*arrays: Any, **rest: Any) -> Any:
        if len(arrays) == 2 or any(name in rest for name in names):
            return pair(*arrays, **rest)
        listed = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else arrays
        if len(listed) < 2:
            plural = "" if len(listed) == 1 else "s"
            raise ParameterError(f"{op.name}: {len(listed)} array{plural}; give two or more, or a list of them")
        static = {p.name: rest.get(p.name, p.default) for p in op.static}
        shapes = [tuple(x.shape) if hasattr(x, "shape") else np.shape(x) for x in listed]
        for i, shape in enumerate(shapes[2:], 2):
            try:
                op.result_shapes((shapes[0], shape), static)
            except ShapeError as error:
                raise ShapeError(str(error).replace(":", f": array {i}:", 1)) from None
        out = rest.pop("out", None)
        while len(listed) > 2:  # neighbours, so that each element is copied a few times only
            pairs = [listed[i : i + 2] for i in range(0, len(listed), 2)]
            listed = [pair(*two, **rest) if len(two) == 2 else two[0] for two in pairs]
        return pair(*listed, **rest, out=out)

    return joined


def _planner(op: Op) -> Callable[..., Any]:
    known = [p.name for p in parameters(op) if p.name not in (*op.operands, "out")]

    def plan_for(*operands: Any, backend: str | None = None, **static: Any) -> Any:
        """The bare kernel for operands like these: `kernel(*operands, *parameters, out)`, returning 0.

        backend: the name of the one to use; by default the choice is automatic.
        """
        operands, static = unpack(op, bare(op, operands), static)
        for name in static:
            if name not in known:
                detail = f"parameters are {', '.join(known)}" if known else "there are no parameters"
                raise ParameterError(f"{op.name}: plan has no parameter {name!r}; {detail}")
        arrays = [np.asarray(x) for x in operands[: plan.keys(op)]]
        if len(arrays) < plan.keys(op):
            raise ShapeError(f"{op.name}: plan needs {plan.keys(op)} operands to plan for, and got {len(arrays)}")
        says = next((i for i, s in enumerate(op.signature.inputs) if not s.type), None)
        requested = DTYPES["f4"] if says is None else arrays[says].dtype
        dtype = next((t for t in DTYPES.values() if t == requested), None)
        if dtype is None:
            detail = "plans are for float32 or float64, and host kernels take no other dtype"
            raise DtypeError(f"{op.name}: {op.operands[says or 0]} is {requested}; {detail}")
        values = tuple(plain(static.get(p.name, p.default)) for p in op.static)
        for p, value in zip(op.static, values, strict=True):
            if not p.takes(value):
                raise unfit(op, p, value)
        sizes = tuple(a.size.bit_length() for a in arrays)
        with use(backend) if backend else nullcontext():
            rank = arrays[0].ndim
            fits = op.structured or 0 < rank <= 2
            kernel = current.get().kernel(op, dtype, values, rank, sizes) if fits else refuse
        if kernel is refuse:
            raise ShapeError(f"{op.name}: no plan for shape {arrays[0].shape}; call the op itself")
        return kernel

    plan_for.__name__ = "plan"
    return plan_for


def function(name: str) -> Callable[..., Any]:
    """The public function called `name`, or an alias of it; KeyError if no op has that name."""
    name = ALIASES.get(name, name)
    if name not in FUNCTIONS:
        FUNCTIONS[name] = build(TABLE[name])
    return FUNCTIONS[name]


def _offered(op: Op, backend: Backend) -> None:
    """Open the compiled door of a public function, once a plan of its op has machine code."""
    function = FUNCTIONS.get(op.name)
    if function is None or op is not TABLE.get(op.name) or settings.get("TRUENO_DOOR") == "off":
        return
    with importing, ieee():
        from trueno.door.doors import offer  # start-up
    offer(op, function, backend)


on_code(_offered)


__all__ = ["Parameter", "build", "function", "source"]
