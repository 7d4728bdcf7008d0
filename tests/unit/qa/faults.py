"""Faults that each gate must see: what the gate guards, broken.  `plant` is given pytest's monkeypatch."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import trueno
from trueno.formats import FORMATS
from trueno.qa import measurement
from trueno.settings import settings
from trueno_cuda.catalogue import parity, registry
from trueno_cuda.gates import explain, kernels
from trueno_cuda.ptx.analyze import report
from trueno_cuda.rows import rowprogram

FAULTS = {}
"""By gate: a list of (what is broken, plant, a part of the failure's sentence)."""


def fault(gate, sentence):
    def declare(plant):
        FAULTS.setdefault(gate, []).append((plant.__name__, plant, sentence))
        return plant

    return declare


def child(patch, code):
    """Run this first in every child process of a gate."""
    patch.setattr(measurement, "BEFORE", code)


def one_up(function):
    """Every number of the results is the next one above."""
    return lambda *args, **keywords: np.nextafter(function(*args, **keywords), np.float32(np.inf))


@fault("F-TRUENO-001", "the best backend is scalar")
def scalar_is_best(patch):
    settings.override("TRUENO_BACKEND", "scalar")


@fault("F-TRUENO-001", "away from float64")
def softmax_is_off(patch):
    right = trueno.softmax
    patch.setattr(trueno, "softmax", lambda x: right(x) * np.float32(1.01))


@fault("F-TRUENO-002", "decodes otherwise than in ggml")
def one_bit_is_off(patch):
    patch.setattr(trueno, "dequantize", one_up(trueno.dequantize))


@fault("F-TRUENO-003", "the decoders disagree")
def a_decoder_is_off(patch):
    patch.setattr(trueno, "dequantize", one_up(trueno.dequantize))


@fault("F-TRUENO-003", "formats of its own: trueno_scalar.backend.FORMATS, trueno_scalar.backend.OWN")
def a_plugin_has_its_own_table(patch):
    import trueno_scalar.backend

    patch.setattr(trueno_scalar.backend, "FORMATS", dict(FORMATS), raising=False)
    patch.setattr(trueno_scalar.backend, "OWN", replace(FORMATS["q4_k"], bias=1), raising=False)


@fault("F-TRUENO-004", "add is wrong on the emulator")
def an_add_subtracts(patch):
    def kernels_of(*args, **keywords):
        return tuple(replace(k, text=k.text.replace("add.f32", "sub.f32")) for k in right(*args, **keywords))

    right = rowprogram.kernels
    patch.setattr(rowprogram, "kernels", kernels_of)
    patch.setattr(kernels, "KERNELS", ("add",))


@fault("F-TRUENO-004", "does not accept this text")
def the_text_is_not_ptx(patch):
    if not kernels.ptxas():
        pytest.skip("ptxas is not installed")
    right = kernels.assembled
    patch.setattr(kernels, "KERNELS", ("add",))
    patch.setattr(kernels, "assembled", lambda text, arch: right(text.replace(".reqntid", ".threads"), arch))


@fault("F-TRUENO-004", "tokens/s, and 10 is the least")
def the_engine_is_slow(patch):
    patch.setattr(kernels, "KERNELS", ("add",))
    patch.setattr(kernels, "tokens_per_second", lambda m: 9.5)


@fault("F-TRUENO-005", "the guard let a NaN of")
def a_guard_without_rules(patch):
    class Guard:
        def on(self, *rule):
            return lambda function: function

    patch.setattr(trueno, "JidokaGuard", Guard)


@fault("F-TRUENO-006", "of 100 elements reached a GPU")
def small_arrays_go_to_a_gpu(patch):
    child(patch, "import trueno.select.policy as p; p.GPU_ELEMENTS = 50; p.GPU_FLOPS = 100")


@fault("F-TRUENO-007", "are not those of D and Dᵀ")
def columns_are_rows(patch):
    by_row = trueno.quant_matvec
    patch.setattr(trueno, "quant_matvec_colmajor", lambda w, x, **k: by_row(w, x, activations="f32", **k))


@fault("F-TRUENO-008", "on wgpu is wrong")
def a_shader_subtracts(patch):
    child(
        patch,
        """
from wgpu.backends import wgpu_native as n
make = n.GPUDevice.create_shader_module
def wrong(self, *, label="", code):
    return make(self, label=label, code=code.replace("fma(", "-fma("))
n.GPUDevice.create_shader_module = wrong
""",
    )


def altered(change):
    """The pairs with the batched kernel of one changed."""

    def plant(patch, name):
        right = parity.pairs()
        some = [p if p.name != name else replace(p, batched=change(p)) for p in right]
        patch.setattr(parity, "pairs", lambda *arch: tuple(some))

    return plant


def text(pair, old, new):
    assert old in pair.batched.text
    return replace(pair.batched, text=pair.batched.text.replace(old, new))


@fault("F-TRUENO-009", "does not read %ctaid.y")
def rows_along_x(patch):
    altered(lambda p: text(p, "%ctaid.y", "%ctaid.x"))(patch, "swiglu")


@fault("F-TRUENO-009", "results differ: rope")
def a_sign_is_wrong(patch):
    altered(lambda p: text(p, "neg.f32", "abs.f32"))(patch, "rope")


@fault("F-TRUENO-009", "no batched form of rope")
def a_pair_is_missing(patch):
    some = tuple(p for p in parity.pairs() if p.name != "rope")
    patch.setattr(parity, "pairs", lambda *arch: some)


@fault("F-TRUENO-010", "reads %ctaid.y")
def vectors_along_y(patch):
    altered(lambda p: text(p, "%ctaid.x", "%ctaid.y"))(patch, "quant_rows_q4_k")


@fault("F-TRUENO-010", "have other products")
def the_unrolling_is_lost(patch):
    def build(entry, arch, constants):
        return right(entry, arch, {"columns": min(constants["columns"], 3)})

    right = registry.build
    pairs = parity.pairs()
    patch.setattr(parity, "registry", SimpleNamespace(build=build))
    patch.setattr(parity, "pairs", lambda *arch: pairs)


@fault("F-TRUENO-011", "does not read %ctaid.y")
def rms_norm_along_x(patch):
    altered(lambda p: text(p, "%ctaid.y", "%ctaid.x"))(patch, "rms_norm")


@fault("F-TRUENO-011", "numbers differ")
def the_last_rows_are_lost(patch):
    def clamped(pair):
        place = re.search(r"mov\.u32 (%r\d+), %ctaid\.y;", pair.batched.text)
        return text(pair, place[0], f"{place[0]}\n    min.u32 {place[1]}, {place[1]}, 2;")

    altered(clamped)(patch, "rms_norm")


@fault("F-TRUENO-012", "do not have the steps")
def a_step_is_lost(patch):
    child(
        patch,
        """
from trueno_cuda.mapping.reference import Reference
steps = Reference.steps
Reference.steps = lambda self: (s for s in steps(self) if (s.layer, s.name) != (5, "rope"))
""",
    )


@fault("F-PTX-EXPLAIN-001", "the roofline is")
def flops_are_doubled(patch):
    right = report.flops
    patch.setattr(report, "flops", lambda ins: {kind: 2 * n for kind, n in right(ins).items()})


@fault("F-PTX-EXPLAIN-002", "reports the lines []")
def the_rule_is_blind(patch):
    rules = report.check.__globals__["RULES"]
    patch.setitem(rules, explain.RULE, replace(rules[explain.RULE], check=lambda entry: iter(())))


@fault("F-PTX-EXPLAIN-003", "the output is not JSON")
def the_report_has_a_nan(patch):
    child(
        patch,
        "import trueno.escape as e; dumps = e.dumps; e.dumps = lambda r, **k: dumps(r, **k).replace('0.0833', 'NaN')",
    )


@fault("F-PTX-EXPLAIN-004", "--strict loses findings")
def strict_leaves_rules_out(patch):
    right = report.check
    patch.setattr(
        report,
        "check",
        lambda part, names, used: right(part, names[2:] if len(names) > len(explain.USUAL) else names, used),
    )


@fault("F-PTX-EXPLAIN-005", "stderr has")
def a_traceback(patch):
    child(
        patch,
        """
import sys
import trueno_cuda.analyzing as a
def missing(name, *rest):
    print("Traceback of", name, file=sys.stderr)
    sys.exit(2)
a._analysis = missing
""",
    )


@fault("F-PTX-EXPLAIN-005", "the exit code is 0")
def no_exit_code(patch):
    child(patch, "import atexit, os, sys; atexit.register(lambda: (sys.stderr.flush(), os._exit(0)))")
