"""The process that probes one backend, `python -m trueno.probing.child NAME …`: it prints a verdict as JSON.

The factory, `probe(1)`, `probe(2)`, and then the core's own check: one or two ops on a few numbers, compared
with float64.  Whatever the plugin prints is caught; only a line that says "ready" and the verdict go to the
stdout that this process was started with.  The parent, which has read the manifest, also gives the factory, the
array type that its kernels take, the seconds after which it ends this process, and the plugin's own settings.
"""

import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from typing import Any

import numpy as np

from trueno.discovery.protocol import Backend, Call, Device
from trueno.ops import TABLE
from trueno.ops.op import Op
from trueno.parsers import TYPES
from trueno.probing import probe, process
from trueno.probing.verdicts import Verdict, sentence
from trueno.programs.evaluate import evaluate
from trueno.settings import Setting, settings

FIRST = ("add", "relu", "sum", "mul", "max", "dot", "exp", "softmax")
"""Ops that are tried before those of the rest of the table."""
ENOUGH = 2
COUNTS = (37, 64)
"""Numbers in a row: not a multiple of a vector's lanes, and one that is, for kernels that refuse the first."""
TOLERANCE = 1e-4
"""Relative and absolute: this check looks for broken kernels; `trueno conformance` judges accuracy."""
TRACE = 4000


class Wrong(Exception):
    """A sentence that says what a backend did wrong."""


def main(name: str, factory: str, array: str, seconds: str, own: str) -> None:
    """Probe the backend `name` and print the verdict; ends this process.

    own: the plugin's settings as JSON, {variable: [type, default, help]}.
    """
    answers = os.dup(1)  # processes started by the plugin do not inherit it
    printed = _catch_stdout()
    _no_core_file()
    faulthandler.dump_traceback_later(2 * float(seconds) + 10, exit=True)  # the parent may die before this process
    for variable, (kind, default, words) in json.loads(own).items():
        fixed = tuple(default) if isinstance(default, list) else default
        settings.declare(variable, Setting(TYPES[kind], fixed, words))
    os.write(answers, f"{process.READY}\n".encode())
    verdict = verify(name, factory, array != "numpy:ndarray", printed)
    os.write(answers, f"{json.dumps(verdict.plain())}\n".encode())
    os._exit(0)  # a library that hangs at exit must not delay the answer


def _no_core_file() -> None:
    """Keep a crash of this process, which may well happen, from writing its memory to a file."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def verify(name: str, factory: str, foreign: bool, printed: Any = None) -> Verdict:
    """The verdict on a backend.  foreign: its kernels take its own array type.  printed: where stdout is caught."""
    start = time.perf_counter()
    notes: list[str] = []
    devices: tuple[Device, ...] = ()
    reason = trace = ""
    absent = False
    with probe.restore_environ(notes):
        try:
            backend = probe.build(name, factory)
            for level in (1, 2):
                answer = probe.ask(backend, level)
                reason, devices, absent = answer.reason, answer.devices or devices, answer.absent
                if reason:
                    break
            if not reason:
                check(backend, foreign)
        except Wrong as error:
            reason = str(error)
        except BaseException as error:  # also SystemExit, and the panics of other languages
            reason, trace = probe.describe(error), traceback.format_exc()[-TRACE:]
    notes = [note.replace(", which was undone", "") for note in notes]
    if line := _first_line(printed):
        notes.insert(0, f'it prints on stdout: "{line}"')
    return Verdict(
        ok=not reason,
        code="no_device" if absent else "probe_failed" if reason else "",
        reason=sentence(reason),
        devices=devices[:64],
        notes=tuple(map(sentence, notes)),
        seconds=round(time.perf_counter() - start, 3),
        trace=trace,
        time=time.time(),
    )


def _catch_stdout() -> Any:
    """The file that receives all later output, by Python or by C; None where there is no room for one."""
    try:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        return None
    os.dup2(file.fileno(), 1)
    return file


def _first_line(printed: Any) -> str:
    if printed is None:
        return ""
    sys.stdout.flush()
    printed.seek(0)
    lines = printed.read(65536).decode("utf-8", "replace").splitlines()
    return next((line.strip()[:200] for line in lines if line.strip()), "")


# ---- the core's own check --------------------------------------------------------------------------


def check(backend: Backend, foreign: bool) -> None:
    """Run one or two ops that the backend supports, in float32; Wrong if one gives a wrong result."""
    done = 0
    for op in [*(TABLE[name] for name in FIRST), *(op for op in TABLE.values() if op.name not in FIRST)]:
        if op.structured or op.domain or any(p.required and p.symbolic for p in op.params):
            continue
        for count in COUNTS:
            if _try(backend, op, count, foreign):
                done += 1
                break
        if done == ENOUGH:
            return


def _try(backend: Backend, op: Op, count: int, foreign: bool) -> bool:
    """Whether the backend ran `op` on `count` numbers correctly; False if it takes no such call."""
    what = f"its {op.name} of {count} numbers"
    static = tuple((p.name, p.default) for p in op.static)
    dtype = np.dtype(np.float32)
    call = Call(op, dtype, op.layout, 1, (count.bit_length(),), static)
    if backend.supports(call) is not None:
        return False
    program = op.program(op.layout, **dict(static))
    inputs = [_numbers(i, count, kind) for i, (_, kind) in enumerate(program.operands)]
    params = [float(p.default) for p in op.params if p.symbolic]
    with np.errstate(all="ignore"):
        expected = evaluate(program, [x.astype(np.float64) for x in inputs], params, np.float64)
    if not all(np.isfinite(value).all() for value in expected):
        return False
    kernel = backend.kernel(call)
    if not callable(kernel):
        raise Wrong(f"its kernel({op.name}) gave a {type(kernel).__name__}, which cannot be called")
    operands = [_moved(backend, x) if foreign else x.copy() for x in inputs]
    outs = []
    for spec, value in zip(op.signature.outputs, expected, strict=True):
        shape = () if op.over is not None and op.over not in spec.dims else (count,)
        outs.append(_room(backend, shape, spec.holds(dtype), foreign))
        assert value.size == int(np.prod(shape)), f"{op.name}: {value.shape} for {shape}"
    try:
        status = kernel(*operands, *params, *outs)
    except Exception as error:
        raise Wrong(f"{what} raised {probe.describe(error)}") from error
    if status is not None and not isinstance(status, (int, np.integer)):
        raise Wrong(f"{what} returned {status!r}, where 0 or −1 was expected")
    if status == -1:
        return False
    if status not in (0, None):
        raise Wrong(f"{what} returned {status}, where 0 or −1 was expected")
    backend.synchronize()
    for out, value in zip(outs, expected, strict=True):
        _compare(what, _on_host(backend, out), value)
        if foreign:
            _compare(f"{what}, copied back by to_host(x, out),", _written(backend, out), value)
    for x, now in zip(inputs, operands, strict=True):
        if not np.array_equal(_on_host(backend, now) if foreign else now, x):
            raise Wrong(f"{what} changed an operand")
    return True


def _numbers(which: int, count: int, kind: str) -> np.ndarray[Any, Any]:
    """Quarters from −3 to 3, different ones for each operand: their sums and products are exact."""
    i = np.arange(count if kind in "ew" else 1)
    values = ((((7 + 2 * which) * i + 3 * which) % 25 - 12) / 4).astype(np.float32)
    return values if kind in "ew" else values.reshape(())


def _moved(backend: Backend, x: np.ndarray[Any, Any]) -> Any:
    array = backend.to_device(x)
    _agree("to_device", array, x.shape, x.dtype)
    return array


def _room(backend: Backend, shape: tuple[int, ...], dtype: np.dtype[Any], foreign: bool) -> Any:
    """An array for a result, from the backend's `empty`; NumPy's is filled with a value that no op produces."""
    array: Any = backend.empty(shape, dtype)
    _agree("empty", array, shape, dtype)
    if not foreign:
        if not isinstance(array, np.ndarray):
            raise Wrong(f"its empty gave a {type(array).__name__}, and its manifest says that it takes NumPy's arrays")
        array.fill(np.nan if dtype.kind == "f" else -1)
    return array


def _on_host(backend: Backend, x: Any) -> np.ndarray[Any, Any]:
    back = backend.to_host(x)
    if not isinstance(back, np.ndarray):
        raise Wrong(f"its to_host gave a {type(back).__name__} where a NumPy array was expected")
    _agree("to_host", back, tuple(x.shape), np.dtype(x.dtype))
    return back


def _written(backend: Backend, x: Any) -> np.ndarray[Any, Any]:
    """The content of `out` after `to_host(x, out)`, which is all that the core reads."""
    dtype = np.dtype(x.dtype)
    out = np.full(tuple(x.shape), np.nan if dtype.kind == "f" else -1, dtype)
    back = backend.to_host(x, out)
    if back is not None and back is not out and not (isinstance(back, np.ndarray) and np.shares_memory(back, out)):
        raise Wrong("its to_host(x, out) gave another array than `out`, where the result must be written")
    return out


def _agree(method: str, array: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    got = tuple(getattr(array, "shape", ("none",)))
    if got != shape:
        raise Wrong(f"its {method} gave an array of shape {got} where {shape} was expected")
    kind = getattr(array, "dtype", None)
    if kind != dtype:
        raise Wrong(f"its {method} gave an array of {kind} where {dtype} was expected")


def _compare(what: str, got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    want = expected.reshape(got.shape)
    near = np.abs(got - want) <= TOLERANCE * (1 + np.abs(want))
    if not near.all():
        i = int(np.argmin(near.reshape(-1)))
        one, other = got.reshape(-1)[i], want.reshape(-1)[i]
        raise Wrong(f"{what} gave {one:g} where {other:g} was expected" + (f", at [{i}]" if got.ndim else ""))


if __name__ == "__main__":
    main(*sys.argv[1:])
