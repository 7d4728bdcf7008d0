"""A backend's declarations: manifest, names, protocol, records.  Each function lists all that is wrong.

It returns sentences and raises nothing: a plugin's author wants to see everything at once.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np

from trueno.discovery import manifest as manifests
from trueno.discovery import registry
from trueno.discovery.protocol import (
    API,
    OPTIONAL,
    Accuracy,
    Backend,
    Call,
    Device,
    DeviceBackend,
    OptionalMethods,
    Probe,
    Reject,
)
from trueno.ops import TABLE
from trueno.select.cost import refuse
from trueno.select.reasons import PLUGIN
from trueno.testing.case import keywords
from trueno.testing.expected import split
from trueno.testing.subject import subject

GROUP = "trueno.backends"
DTYPES = ("float32", "float64")
SIZES = (1, 10, 20, 30)
"""Size classes for calls of `supports` and `rates`."""


def manifest_problems(name: str) -> list[str]:
    """Problems with the manifest of an installed backend and with its entry point."""
    manifest = registry.entries()[name].manifest
    if manifest is None or not manifest.path:
        return []  # the core's own has no file
    wrong = []
    try:
        data = manifests.load(manifest.path)
        manifests.parse(data, manifest.path, name)
    except ValueError as error:
        return [str(error)]
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        wrong.append(f"the name {name!r} must be lower-case letters, digits and _, the first a letter")
    if not manifest.api[0] <= API <= manifest.api[1]:
        wrong.append(f"api is {list(manifest.api)}, which leaves out {API}, the protocol of this trueno")
    if "install" not in data:
        wrong.append("install is missing: the command that a user types when something is not there")
    points = [p for p in metadata.entry_points(group=GROUP) if p.name == name]
    if len(points) > 1:
        brought = ", ".join(sorted({p.dist.name if p.dist else p.value for p in points}))
        wrong.append(f"{len(points)} entry points are called {name!r}: {brought}")
    for point in points[:1]:
        try:
            if manifests.locate(point.value) != manifest.path:
                wrong.append(f"the entry point names {manifests.locate(point.value)}, but {manifest.path} is in use")
        except ValueError as error:
            wrong.append(str(error))
    return wrong


def name_remarks(name: str) -> list[str]:
    """Names that users would not guess: remarks, not errors."""
    manifest = registry.entries()[name].manifest
    if manifest is None or not manifest.path:
        return []
    remarks = []
    plain, wanted = re.sub(r"[-_.]+", "-", manifest.distribution).lower(), f"trueno-{name}".replace("_", "-")
    if manifest.distribution and plain != wanted and not wanted.startswith(f"{plain}-"):
        remarks.append(f"the distribution is called {manifest.distribution}; users will look for {wanted}")
    package, wanted = package_of(name), f"trueno_{name}"
    if package and package != wanted and not wanted.startswith(f"{package}_"):
        remarks.append(f"the package is called {package}; users will look for {wanted}")
    if not manifest.distribution:
        remarks.append("no distribution has it: it was registered in code, and exists in this process only")
    return remarks


def package_of(name: str) -> str:
    """The top-level package of a backend's code; "" for the core's own, and for one without a file to find it by."""
    manifest = registry.entries()[name].manifest
    return manifest.factory.partition(":")[0].partition(".")[0] if manifest and manifest.path else ""


def protocol_problems(name: str) -> list[str]:
    """Problems with the members of an installed backend."""
    by = subject(name)
    return member_problems(by.backend, name, registry.entries()[name].kind, foreign=by.foreign)


def blocking_problems(name: str) -> list[str]:
    """Problems that make every other check meaningless: members or records that the core cannot call or read."""
    wrong = protocol_problems(name)
    backend: Any = subject(name).backend
    wrong += _accuracy(getattr(backend, "accuracy", None))
    return wrong or [problem for call in calls(name) if (problem := _answer(backend, call))][:1]


def _answer(backend: Any, call: Call) -> str:
    """Problems with the answer of `supports`, apart from its words."""
    where = f"supports({call.op.name} {call.dtype})"
    try:
        reject = backend.supports(call)
    except Exception as error:
        return f"{where} raised {type(error).__name__}: {error}; return None or a Reject"
    if reject is None or isinstance(reject, Reject):
        return ""
    return f"{where} gave {reject!r}; it must be None, which takes the call, or a Reject(code, detail)"


def member_problems(backend: Any, name: str, kind: str, *, foreign: bool = False) -> list[str]:
    """Members of `Backend` that are missing, do not match the manifest, or cannot be called as the core does.

    foreign: it has its own array type, and must be able to `copy` its arrays.
    """
    wrong = [f"{member} is missing" for member in Backend.__annotations__ if not hasattr(backend, member)]
    owners = (Backend, DeviceBackend, OptionalMethods) if foreign else (Backend, OptionalMethods)
    for member, declared in [item for owner in owners for item in vars(owner).items()]:
        if member.startswith("_") or not inspect.isfunction(declared):
            continue
        method = getattr(backend, member, None)
        if member in OPTIONAL and (method is None or isinstance(method, dict)):  # `limits` may be the dict itself
            continue
        if not callable(method):
            wrong.append(f"{member}{_arguments(declared)} is missing")
            continue
        try:
            signature = inspect.signature(method)
        except (TypeError, ValueError):  # compiled code has no signature
            continue
        parameters = list(inspect.signature(declared).parameters.values())[1:]
        required = [p for p in parameters if p.default is p.empty]
        for count in {len(required), len(parameters)}:
            try:
                signature.bind(*range(count))
            except TypeError as error:
                wrong.append(f"{member}{signature} cannot be called as {member}{_arguments(declared)}: {error}")
                break
    for member, expected in (("name", name), ("kind", kind)):
        if getattr(backend, member, expected) != expected:
            wrong.append(f"{member} is {getattr(backend, member)!r}, but its manifest says {expected!r}")
    return wrong


def _arguments(method: Any) -> str:
    names = list(inspect.signature(method).parameters)[1:]
    return f"({', '.join(names)})"


def record_problems(name: str) -> list[str]:
    """Records of the wrong type or with impossible values: accuracy, probe, supports, rates."""
    backend = subject(name).backend
    wrong = [*_accuracy(getattr(backend, "accuracy", None)), *_probe(backend.probe(1))]
    taken = 0
    for call in calls(name):
        where = f"{call.op.name} {call.dtype} {dict(call.static) or ''}".rstrip()
        fault = _answer(backend, call)
        if fault:
            return [*wrong, fault]
        if backend.supports(call) is None:
            taken += 1
            problem = refuse(backend.rates(call))
            if problem:
                wrong.append(f"{where}, size class {call.sizes[0]}: {problem}")
    if not taken:
        wrong.append("supports() takes none of the ops in float32 or float64")
    strange = Call(TABLE["add"], np.dtype(np.int8), "ee", 1, (5,))
    try:
        if backend.supports(strange) is None:
            wrong.append("supports() takes add in int8, which no op has; reject dtypes without a kernel")
    except Exception as error:
        wrong.append(f"supports() of a call in int8 raised {type(error).__name__}: {error}; return a Reject")
    return _few(wrong)


def code_problems(name: str) -> list[str]:
    """Codes of `Reject` outside the vocabulary of `trueno.select.reasons.PLUGIN`."""
    backend = subject(name).backend
    codes = {reject.code for call in calls(name) if isinstance(reject := backend.supports(call), Reject)}
    return [
        f"supports() returned Reject({code!r}), which is not a code of trueno's; choose from {', '.join(PLUGIN)}"
        for code in sorted(codes - set(PLUGIN), key=str)
    ]


def calls(name: str) -> Iterator[Call]:
    """Keys all over the table: each op, dtype and static choice in some sizes."""
    for op in TABLE.values():
        for dtype in DTYPES:
            for kwargs in keywords(op):
                static = tuple(split(op, kwargs)[1].items())
                for size in SIZES:
                    sizes = (size,) * (len(op.operands) if op.structured else 1)
                    rank = max(len(op.signature.inputs[0].dims), 1)
                    yield Call(op, np.dtype(dtype), op.layout, rank, sizes, static)


def _accuracy(accuracy: Any) -> list[str]:
    if not isinstance(accuracy, Accuracy):
        return [f"accuracy is {type(accuracy).__name__}; it must be an Accuracy"]
    ulp: Any = accuracy.ulp
    if not isinstance(ulp, dict):
        example = "give errors by kind, Accuracy(ulp={'exp': 2.0}), or one for all, Accuracy(default=2.0)"
        return [f"accuracy.ulp is {ulp!r}; {example}"]
    wrong = [
        f"accuracy: {kind} is off by {ulp!r} ulp; it must be a number above 0"
        for kind, ulp in (*accuracy.ulp.items(), ("default", accuracy.default))
        if not (isinstance(ulp, (int, float)) and 0 < ulp < float("inf"))
    ]
    if not isinstance(accuracy.chain, int) or accuracy.chain < 1:
        wrong.append(f"accuracy.chain is {accuracy.chain!r}; it must be a whole number, 1 or more")
    return wrong


def _probe(probe: Any) -> list[str]:
    if not isinstance(probe, Probe):
        return [f"probe(1) gave {type(probe).__name__}; it must be a Probe"]
    if not isinstance(probe.devices, tuple) or not all(isinstance(d, Device) for d in probe.devices):
        return [f"probe(1).devices is {probe.devices!r}; it must be a tuple of Device"]
    if not probe.ok and not probe.reason:
        return ["probe(1) says no without a reason; give a sentence with its remedy"]
    return []


def _few(sentences: list[str], most: int = 12) -> list[str]:
    left = len(sentences) - most
    return sentences if left <= 0 else [*sentences[:most], f"… and {left} more"]


def array_problems(name: str) -> list[str]:
    """Errors of `empty`, `to_device` and `to_host`: bytes, shapes, dtypes, the type that the manifest names."""
    by = subject(name)
    wrong = []
    for dtype in (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)):
        for shape in ((), (1,), (7,), (3, 5), (2, 3, 4), (0,), (2, 0)):
            x = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)
            x.flags.writeable = False
            where = f"{dtype} {shape}"
            allocated, moved = by.backend.empty(shape, dtype), by.backend.to_device(x)
            for what, array in (("empty", allocated), ("to_device", moved)):
                if tuple(array.shape) != shape or np.dtype(array.dtype) != dtype:
                    wrong.append(f"{what}({where}) has shape {array.shape} and dtype {array.dtype}")
                if by.manifest and by.manifest.arrays and by.manifest.arrays[0] not in _names(type(array)):
                    wrong.append(
                        f"{what} gives {_names(type(array))[0]}, but the manifest says {by.manifest.arrays[0]}"
                    )
            back: Any = by.backend.to_host(moved)
            out = np.empty(shape, dtype)
            returned = by.backend.to_host(moved, out)
            if not isinstance(back, np.ndarray) or back.shape != shape or back.tobytes() != x.tobytes():
                wrong.append(f"to_host(to_device({where})) is not what was moved")
            if returned is not out or out.tobytes() != x.tobytes():
                wrong.append(f"to_host({where}, out) must fill out and return it")
            if by.foreign:
                device: Any = by.backend
                device.copy(moved, allocated)
                if by.backend.to_host(allocated).tobytes() != x.tobytes():
                    wrong.append(f"copy(x, out) of {where} does not fill out with x")
                flat = moved.reshape((x.size,))
                if tuple(flat.shape) != (x.size,) or by.backend.to_host(flat).tobytes() != x.tobytes():
                    wrong.append(f"reshape of {where} to one axis does not hold the same elements")
    bits: Any = by.backend.synchronize()
    if bits is not None and not isinstance(bits, int):
        wrong.append(f"synchronize() gave {bits!r}; it must be None or status bits")
    return _few(list(dict.fromkeys(wrong)))


def _names(kind: type) -> list[str]:
    return [f"{c.__module__}:{c.__qualname__}" for c in kind.__mro__]
