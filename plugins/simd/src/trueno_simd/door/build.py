"""From an op's kind to the address of its entry: compiled once for all processes, loaded once for each op.

The object code has no address in it, so it is kept beside the kernels, in a folder that is named by a hash of this
plugin's sources and of LLVM's version, under a hash of what the sources make its text from and of the target: the
architecture's plainest CPU, because there is no arithmetic in it.  So nothing is printed that has been compiled before.
After loading, its two variables get the addresses of the process's words and of the op's descriptor.  Nothing loaded is
ever freed: threads and finalizers call ops until the process ends.
"""

import ctypes
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import llvmlite.binding as llvm
from trueno.backend import EntryKind, EntryLayout, EntrySpec, contract

from trueno_simd.codecache import store
from trueno_simd.door.text import Unprintable

SYMBOL = "entry"
MODEL = "large"
"""Every address has 64 bits: code and variables of one object may be mapped further apart than 2 GiB."""
_loaded: list[Any] = []
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_loaded))


def entries(specs: Iterable[EntrySpec], layout: EntryLayout) -> dict[str, int]:
    """The address of the entry of each op; those whose rules cannot be printed have none."""
    addresses = {}
    for spec in specs:
        entry = _code(spec.kind, layout, spec.form)
        if entry is not None:
            addresses[spec.op] = load((entry,), layout.words, spec.descriptor).get_function_address(SYMBOL)
    return addresses


@lru_cache(maxsize=64)
def _code(kind: EntryKind, layout: EntryLayout, form: str) -> bytes | None:
    """The object code of a kind's entry for one form of call; None for an entry that cannot be printed."""

    def text() -> str:
        from trueno_simd.door import entry  # most processes print nothing

        return entry.module(kind, layout, form, SYMBOL)

    return stored((kind, form), layout, text)


def stored(facts: object, layout: EntryLayout, text: Callable[[], str]) -> bytes | None:
    """The object code of the text that these facts and a layout give, from the store where it is compiled already.

    None for a text that is `Unprintable`.
    """
    places = [sorted(table.items()) for table in (layout.word, layout.descriptor, layout.offset)]
    constants = (contract.FORMS, contract.CLASSES, contract.SLOT)
    return object_code((facts, places, constants), text)


def object_code(facts: object, text: Callable[[], str]) -> bytes | None:
    """The object code of the text that these facts give, from the store where it is compiled already."""
    key = repr((facts, MODEL, llvm.llvm_version_info, _target().triple))
    path = store.folder() / f"entry.{blake2b(key.encode(), digest_size=16).hexdigest()}.o"
    code = store.read(path)
    if code is None:
        try:
            code = _compiled(text())
        except Unprintable:
            return None
        with suppress(OSError):
            store.write(path, code)
    return code


@cache
def _target() -> Any:
    """LLVM's view of this architecture."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=2, codemodel=MODEL, reloc="static")


def _compiled(text: str) -> bytes:
    """Object code for a text; these passes give what -O2 gives, in a tenth of its time."""
    target = _target()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = target.triple, str(target.target_data)
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=2)))
    return target.emit_object(module)  # type: ignore[no-any-return]


def load(codes: Iterable[bytes], words: int, descriptor: int) -> Any:
    """The engine in which these object codes are, one of them an entry with this descriptor; it stays for good."""
    engine = mapped(codes)
    for name, value in (("words", words), ("descriptor", descriptor)):
        ctypes.c_int64.from_address(engine.get_global_value_address(name)).value = value
    return engine


def mapped(codes: Iterable[bytes]) -> Any:
    """The engine in which these object codes are; it stays for good."""
    empty = llvm.parse_assembly("", llvm.create_context())
    empty.triple = _target().triple
    engine = llvm.create_mcjit_compiler(empty, llvm.Target.from_default_triple().create_target_machine())
    for content in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    keep(engine)
    return engine


def keep(thing: Any) -> None:
    """Free something never: machine code refers to it."""
    _loaded.append(thing)
