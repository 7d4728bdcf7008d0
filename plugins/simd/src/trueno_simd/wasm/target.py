"""LLVM's texts for this machine become one object for wasm32 with SIMD of 128 bits.

Pointers have 32 bits there, and kernels hold addresses in 64, of which the upper half is zero.  Nothing in a text
depends on the machine but the two lines that name it, for no kernel names an instruction (`trueno_simd.llvm.isa.WASM`).
"""

from collections.abc import Iterable, Sequence

import llvmlite.binding as llvm

from trueno_simd.wasm.linker import LinkError

TRIPLE, FEATURES = "wasm32-unknown-unknown", "+simd128"
MACHINE = ("target triple", "target datalayout")


def compiled(texts: Iterable[str], kernels: Iterable[str], program: str, entries: Sequence[str]) -> bytes:
    """The object of a program with the kernels that it calls.

    texts: of the kernels; kernels: their names, none of which is put into the program.  entries: functions that stay
    callable by name.  LinkError where this LLVM was built without WebAssembly.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(features=FEATURES, opt=3)
    except RuntimeError as error:
        raise LinkError(f"this LLVM has no WebAssembly ({error})") from error
    head = f'target triple = "{TRIPLE}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm.parse_assembly(head + program)
    for text in texts:
        lines = (line for line in text.split("\n") if not line.startswith(MACHINE))
        module.link_in(llvm.parse_assembly(head + "\n".join(lines)))
    _seal(module, set(kernels), entries)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    passes = llvm.create_pass_builder(machine, options)
    unused = llvm.create_new_module_pass_manager()
    unused.add_global_dead_code_eliminate_pass()  # Python's wrappers first of all, which are not for other machines
    unused.run(module, passes)
    passes.getModulePassManager().run(module, passes)
    return machine.emit_object(module)  # type: ignore[no-any-return]


def _seal(module: llvm.ModuleRef, kernels: set[str], entries: Sequence[str]) -> None:
    """Hide all but the entries, so that LLVM removes what is not used and knows every caller of what is."""
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name not in entries:
            one.linkage = "internal"
    for function in module.functions:
        if function.name in kernels:
            function.add_function_attribute("noinline")


__all__ = ["compiled"]
