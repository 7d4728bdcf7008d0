"""Kernels as object code alone, which a later process runs without Numba.

Numba needs half a second before it has read its first kernel from disk, most of it for its own import.  The machine
code needs nothing of it.  So a kernel that calls no other code is kept once more, stripped of Numba's wrapper, and a
later process calls it through an entry of ours (`trueno_simd.door.direct`).  That is done where all is as usual: the
kernel is compiled for this CPU as it is, no setting of Numba's is changed, and the process has not loaded Numba yet.
Kernels that use the thread pool need Numba as before.
"""

import json
import os
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from trueno.backend import Kernel, settings

from trueno_simd.codecache import store
from trueno_simd.door import direct
from trueno_simd.llvm import convention, isa, target

_loaded: dict[str, Kernel] = {}
"""Kernels by name: their code stays mapped for the life of the process, and is not loaded twice."""


def load(name: str) -> Kernel | None:
    """The kernel `name` from disk; None where Numba must give it."""
    if "numba" in sys.modules or not _usual() or settings.get("TRUENO_DOOR") == "off":
        return None
    kernel = _loaded.get(name)
    if kernel is None:
        with suppress(Exception):  # whatever is unusual about this process or the file: Numba does without both
            content = store.read(_file(name))
            if content is not None:
                head, _, code = content.partition(b"\n")
                kernel = direct.kernel(code, tuple(json.loads(head)))
    if kernel is not None:
        _loaded[name] = kernel
    return kernel


def keep(name: str, kernel: Any) -> None:
    """Keep the code of a kernel that Numba has compiled or loaded, if it needs nothing of Numba's.

    The kernel is as good without that: nothing that goes wrong here is an error.
    """
    with suppress(Exception):
        if not kernel.code or not _usual() or not _untouched() or store.read(_file(name)) is not None:
            return
        code = _object_code(kernel)
        if code is not None:
            (compiled,) = kernel.overloads.values()
            head = json.dumps([convention.argument(kind) for kind in compiled.signature.args])
            store.write(_file(name), head.encode() + b"\n" + code)


def _object_code(kernel: Any) -> bytes | None:
    """A kernel's code without Numba's wrapper; None if it refers to anything outside."""
    (compiled,) = kernel.overloads.values()
    library = compiled.library
    module = llvm.parse_bitcode(library._get_module_for_linking().as_bitcode())
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "external" if function.name == compiled.fndesc.llvm_func_name else "internal"
    module.get_function(compiled.fndesc.llvm_func_name).name = direct.SYMBOL
    machine = library.codegen._tm
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    outside = [f for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    outside += [v for v in module.global_variables if v.is_declaration]
    return None if outside else machine.emit_object(module)


def _usual() -> bool:
    """Whether kernels are for this CPU as it is, with no word of Numba's own settings."""
    if isa.capped() or any(variable.startswith("NUMBA_") for variable in os.environ):
        return False
    return target.setting() == (None, None, True) and not Path(".numba_config.yaml").exists()


def _untouched() -> bool:
    """Whether Numba compiles for this CPU as it is, and no program has changed an option of its that changes code."""
    if target.make().cpu is not None:
        return False
    now = vars(sys.modules["numba.core.config"])
    return all(repr(now.get(name)) == value for name, value in _options_at_first().items())


@cache
def _options_at_first() -> dict[str, str]:
    """Numba's options that change code, as it reads them when it is imported."""
    spec = spec_from_file_location("numba.core._config_at_first", sys.modules["numba.core.config"].__file__)
    assert spec is not None
    assert spec.loader is not None
    pristine = module_from_spec(spec)
    spec.loader.exec_module(pristine)
    options = vars(pristine).items()
    return {name: repr(value) for name, value in options if name.isupper() and not target.HARMLESS.match(name)}


@cache
def _cpu() -> str:
    features = llvm.get_host_cpu_features()
    return f"{llvm.llvm_version_info} {llvm.get_host_cpu_name()} {features.flatten()}"


def _file(name: str) -> Path:
    return store.folder() / f"{name}.{blake2b(_cpu().encode(), digest_size=8).hexdigest()}.o"
