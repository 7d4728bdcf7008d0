"""The process that compiles for WebAssembly: it chooses code for that target, which a process can do for one alone.

It also runs kernels as they are, unoptimized, where they say only then how much scratch they need.  LLVM ends a process
over what it cannot compile, and so this one ends, and not the one that exports.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from trueno.backend import TABLE, Call

from trueno_simd.llvm import isa

SPACE = 64


def main() -> None:
    """Read a request (`trueno_simd.wasm.request`) from the standard input; write the module, or why there is none."""
    isa.cross()  # before the modules of kernels, which choose their code when they are imported
    request = json.load(sys.stdin)
    problem = _written(request)
    json.dump({"problem": problem}, sys.stdout)


def _written(request: dict[str, Any]) -> str:
    """Write the module; a sentence where an op has no kernel for it."""
    from trueno_simd.door.sequence import resolve
    from trueno_simd.wasm import target
    from trueno_simd.wasm.linker import LinkError, link
    from trueno_simd.wasm.program import ENTRY, LIBRARY, Program, Unfit, quoted

    memory = np.asarray(np.memmap(request["memory"], np.uint8, "r+"))
    base, stack = request["base"], request["base"]
    program = Program(memory, base, -(-(base + memory.nbytes) // SPACE) * SPACE)
    kernels: dict[int, Any] = {}
    texts: dict[str, str] = {}
    room = 0
    for step in request["steps"]:
        number, arguments = step["kernel"], [_argument(memory, one) for one in step["arguments"]]
        if number not in kernels:
            kernel = _kernel(request["kernels"][number])
            if isinstance(kernel, str):
                return f"{step['op']}: {kernel}"
            kernels[number] = kernel
        call = resolve(kernels[number], tuple(arguments))
        if call is None:
            return f"{step['op']}: no kernel of simd takes this call without Python"
        compiled, given, need = call
        symbol = _symbol(compiled)
        texts.setdefault(symbol, _library(compiled).text)
        try:
            program.call(symbol, compiled.passed[1], given, need)
        except Unfit as error:
            return f"{step['op']}: {error}"
        room = max(room, need)
    declarations = [_declaration(text, quoted(symbol)) for symbol, text in texts.items()]
    try:
        data = target.compiled(texts.values(), texts, program.text(declarations), (ENTRY, *LIBRARY))
        module = link(data, (ENTRY,), program.scratch + room, stack)
    except LinkError as error:
        return str(error)
    Path(request["out"]).write_bytes(module)
    return ""


def _kernel(facts: dict[str, Any]) -> Any:
    """The kernel of a printed text, or of an op of the table; a sentence where there is none."""
    if "text" in facts:
        module = {"__name__": facts["name"]}
        exec(compile(facts["text"], facts["name"], "exec"), module)
        return module["kernel"]
    from trueno_simd.kernels import KERNELS

    static = tuple((name, value) for name, value in facts["static"])
    call = Call(TABLE[facts["op"]], np.dtype(facts["dtype"]), facts["layout"], facts["rank"], tuple(facts["sizes"]),
                static)  # fmt: skip
    refusal = KERNELS.refusal(call)
    return KERNELS.kernel(call) if refusal is None else f"simd has no kernel for it ({refusal.detail})"


def _argument(memory: Any, one: Any) -> Any:
    if not isinstance(one, list):
        return float(one)
    at, shape, name = one
    dtype = np.dtype(name)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return memory[at : at + size].view(dtype).reshape(shape)


def _library(kernel: Any) -> Any:
    (compiled,) = kernel.overloads.values()
    return compiled.library


def _symbol(kernel: Any) -> str:
    (compiled,) = kernel.overloads.values()
    return str(compiled.fndesc.llvm_func_name)


def _declaration(text: str, symbol: str) -> str:
    """The declaration of a function that a text defines."""
    start = text.index(f"@{symbol}(")
    head = text[text.rindex("\n", 0, start) + 1 : text.index("{\n", start)]
    return "declare " + head.removeprefix("define ")


if __name__ == "__main__":
    main()
