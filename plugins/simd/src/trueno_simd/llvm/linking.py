"""A kernel is one piece of machine code, and nothing in it goes by a name that other code could claim.

Left to itself, Numba compiles every function alone and links a copy of it into each caller, all under one name,
and the process takes whichever it met first.  So a kernel that was just compiled ran its pieces as they had been
compiled alone, and the same kernel from disk ran its own copies, which LLVM had optimized once more, in the caller:
sums were added up in another order, and last bits depended on whether the cache was warm.  Worse, names end in a
number that counts the functions of a process, so that two kernels from disk can have one name for different code.

Here what only kernels call is never compiled alone, and what a kernel brings with it is hidden inside.
"""

from typing import Any

import numba  # noqa: F401  # before its modules: see `elsewhere`
from llvmlite.binding import create_new_module_pass_manager
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from trueno_simd.llvm import environment

SHARED = ("linkonce_odr", "weak_odr")  # how LLVM marks what several may define and any one of them may give to all


class _Unplaced:
    """Numba's code generator for a library that is nowhere in memory: there is no environment to point anywhere."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def set_env(self, name: str, environment: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)


class _Ingredient(JITCodeLibrary):  # type: ignore[misc]
    """Code for others to link: optimized, never translated to machine code."""

    bits = 0

    @property
    def codegen(self) -> Any:
        return _Unplaced(self._codegen)

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # Numba's word for "not defined here"

    def add_ir_module(self, ir_module: Any) -> None:
        _prefer(ir_module, self.bits)
        super().add_ir_module(ir_module)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """A kernel with all that was linked into it, which is hidden once it has been optimized.

    What `trueno_simd.llvm.wide` and `rare` write for whole vectors is inlined then: LLVM calls it only after its own
    inlining, when it vectorizes.
    """

    bits = 0

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self._kernels: set[str] = set()

    def add_ir_module(self, ir_module: Any) -> None:
        """Numba adds the kernel's module first, then that of the wrapper, which Python calls."""
        _prefer(ir_module, self.bits)
        self._kernels |= environment.kernels(ir_module)
        environment.guard(ir_module, self._kernels)
        super().add_ir_module(ir_module)

    def _finalize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name in SHARED:
                function.linkage = "internal"
        passes = create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_instruction_combine_pass()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(self._final_module, self._codegen._pass_builder())
        super()._finalize_final_module()


class _Foreign(JITCodeLibrary):  # type: ignore[misc]
    """A kernel that runs here as it is, and whose text another target compiles (`trueno_simd.wasm`).

    text: of the kernel, all that it calls, and Python's wrapper, before LLVM has optimized any of it for this machine.
    """

    text = ""

    def _optimize_final_module(self) -> None:
        self.text = str(self._final_module)
        super()._optimize_final_module()


class _WideIngredient(_Ingredient):
    bits = 512


class _WideWhole(_Whole):
    bits = 512


def _prefer(module: Any, bits: int) -> None:
    """Let LLVM vectorize the module's functions in registers of so many bits, if it has them (0: as it prefers)."""
    for function in module.functions if bits else ():
        if function.blocks:
            set.add(function.attributes, f'"prefer-vector-width"="{bits}"')  # llvmlite's own `add` knows no such words


def _into(library_class: type) -> type:
    class Into(Compiler):  # type: ignore[misc]
        def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
            super().__init__(typingctx, targetctx, library, *rest)
            if library is None:
                self.state.library = library_class(targetctx.codegen(), "kernel")
                self.state.library.enable_object_caching()

    return Into


INGREDIENT, WHOLE = _into(_Ingredient), _into(_Whole)
"""Numba's compiler (`pipeline_class`) for functions that only kernels call, and for kernels."""
INGREDIENT_WIDE, WHOLE_WIDE = _into(_WideIngredient), _into(_WideWhole)
"""The same with registers of 512 bits."""
FOREIGN = _into(_Foreign)
