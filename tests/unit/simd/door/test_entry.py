"""The text of entries, and how they are kept."""

import re
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
import trueno
from numba import types
from trueno.backend import EntryKind, EntryLayout
from trueno.door import doors
from trueno.door.kinds import kind_of
from trueno.ops import TABLE
from trueno_simd.codecache import store
from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.door import build, entry, environment, strided
from trueno_simd.door.text import Function, Unprintable
from trueno_simd.llvm import convention
from unit.simd.door.opened import opened

KINDS = sorted({kind for op in TABLE.values() if (kind := kind_of(op))}, key=str)


def layout() -> EntryLayout:
    opened("add")
    return doors._layout()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_text_is_valid_and_always_the_same(kind: EntryKind) -> None:
    forms = ["", "eu", "ue", "ew", "we"] if kind.broadcasts else [""]
    for form in forms:
        text = entry.module(kind, layout(), form, build.SYMBOL)
        assert text == entry.module(kind, layout(), form, build.SYMBOL)
        llvm.parse_assembly(text, llvm.create_context()).verify()


def test_the_text_names_no_address() -> None:
    text = entry.module(KINDS[0], layout(), "", build.SYMBOL)
    numbers_in_it = [int(n) for n in re.findall(r"(?<![\w.])\d{5,}", text)]
    known = {2**63 - 1, 65472, strided.MOST}
    assert set(numbers_in_it) <= known, "the mask of the argument count, the modes of a float, and a size"
    assert "inttoptr (i64 1 to ptr)" not in text or KINDS[0].broadcasts


@pytest.mark.parametrize("machine, word", [("x86_64", "stmxcsr"), ("aarch64", "get.fpcr")])
def test_each_architecture_is_asked_for_its_modes(machine: str, word: str) -> None:
    assert word in environment.declarations(machine)


def test_a_rule_that_cannot_be_printed_leaves_the_op_out() -> None:
    kind = EntryKind("e", False, False, True, ((False, False),), ("p0 < 1 or p0 > 2",))
    with pytest.raises(Unprintable):
        entry.module(kind, layout(), "", build.SYMBOL)
    spec: Any = type("Spec", (), {"op": "x", "kind": kind, "descriptor": 0, "form": ""})
    assert build.entries((spec,), layout()) == {}


def test_an_array_is_passed_in_parts() -> None:
    f = Function("define void @f()")
    assert convention.array(f, "%p", "4", ["%r", "%n"])[-4:] == ["i64 %r", "i64 %n", "i64 %v1", "i64 4"]
    assert convention.array(f, "%p", "8", []) == ["ptr null", "ptr null", "i64 1", "i64 8", "ptr %p"]


def test_a_kernel_of_a_row_program_has_code() -> None:
    with trueno.use("simd"):
        assert trueno.leaky_relu.plan(np.ones((3, 4), np.float32)).code


def test_the_convention_of_a_kernel_is_verified() -> None:
    rows = types.Array(types.float32, 2, "C")

    @kernel_entry(types.int64(rows, types.float64, rows), cache=False)
    def kernel(x, p, out):  # type: ignore[no-untyped-def]
        return 0

    assert (kernel.code, kernel.passed) == (convention.passed(kernel)[0], convention.passed(kernel))
    assert kernel.code != 0

    class Other:
        overloads = kernel.overloads

        class targetdescr:
            class target_context:
                class call_conv:
                    @staticmethod
                    def get_function_type(result: Any, arguments: Any) -> Any:
                        return kernel.targetdescr.target_context.call_conv.get_function_type(result, arguments[1:])

    assert convention.passed(Other) == (0, ())


def test_object_code_is_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_kept", lambda: tmp_path)
    compiled: list[str] = []
    compile_ = build._compiled
    monkeypatch.setattr(build, "_compiled", lambda text: compiled.append(text) or compile_(text))
    kind = KINDS[0]

    def code() -> bytes:
        build._code.cache_clear()
        return build._code(kind, layout(), "")

    first = code()
    (file,) = tmp_path.glob("entry.*.o")
    assert code() == first and len(compiled) == 1
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.write_bytes(body)
    assert code() == first and len(compiled) == 2, "damaged: compiled again"
    assert code() == first and len(compiled) == 2
    monkeypatch.setattr(store, "_kept", lambda: None)
    assert store.read(file.name) is None
    build._code.cache_clear()
