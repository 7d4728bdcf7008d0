"""Gates about block formats: the same numbers as ggml, from one table, in both orders of a matrix."""

import base64
import sys
from hashlib import sha256
from importlib import import_module, util
from typing import Any

import numpy as np

from trueno.discovery import registry
from trueno.formats import FORMATS, INTERLEAVED, Format
from trueno.formats.decode import decode
from trueno.qa.measurement import Measurement
from trueno.qa.registry import gate

GGML_BLOCKS = base64.b64decode(
    b"vkKKGLPOlsiGU0VWWCvbtmx4xP3i1MvZNT774us8al6O0TsykHIMK2r+z5hw7T4j+7PXOIpt8+ZdBaRqtZqicIFOU34IKwvdIB98"
    b"3vsOrLuhfbypGlx8NZSkmaSqQNKGXn2Rac0D02NnRXIOxieV1Cx0Z6v8oXsYw7wXp+KiF9m+hHY1OeVkuK48c2/NOMxrrDiHgskc"
    b"ujb/nakV3yvT20pGhCsZwhx7LWUCX1ok4PYdo28tfvu7+PH25gO3wwXjYVRF52hfJSCQkNCBEHqDp5jLeD3rKl6N6DM7pwSr+BNo"
    b"kHs06LlbUG1uyqQutx8SuNQ+9uTGMmuuW1s7KVm11mT812iKvjk9m9JGbGB4cFXXrAgguKYmEFIOV5ov/0zSHYHnMDocxsTw04iu"
    b"1/9mcT977KucalpW2z41HgE6Nh0tjr+jaWYCDqqvS0l0vHRGQ5622bAaMxQZw01VEQJq/8xXX94ZtJUQSwkfIOLT96fkmz6RRcY5"
    b"jLAJPrYOCEG2+vJhqaj2OS0L13UqhPe+3MB0y7f4WC6++rfG2gxSQm9tGkhXKLFYCFzKQC6xnp4U"
)
"""Three blocks of Q4_K, random but for their scales."""
GGML_VALUES = "64c25d57e28724d4048237385bf669ab5df7ad0377d948b45db4157af48593a1"
"""SHA-256 of the 768 numbers, float32, that ggml 0.25.3 (gcc 12.2, x86-64) decodes them to."""
NAME = "q4_k"
ROWS, COLUMNS = 16, 256
"""Of the matrices that are decoded."""
SIDE = 256
"""Of the matrix whose products are compared: one block a row, so that both orders are possible."""


@gate("F-TRUENO-002")
def q4_k_is_as_in_ggml(m: Measurement) -> None:
    """Decode blocks of Q4_K on every backend that can run here, and compare bit by bit.

    Three blocks are compared with what ggml itself decoded them to (a digest is part of the gate), 96 fresh random
    ones with the decoder of the package `gguf`, if it is installed.
    """
    trueno: Any = import_module("trueno")  # its ops
    golden = np.frombuffer(GGML_BLOCKS, np.uint8).reshape(1, -1)
    fresh = _random_blocks(np.random.default_rng(), 32, 3)
    wanted = None
    if util.find_spec("gguf") is not None:
        gguf: Any = import_module("gguf")
        wanted = gguf.quants.dequantize(fresh, gguf.GGMLQuantizationType.Q4_K).astype("<f4")
    names, differing = _backends(), {}
    for name in names:
        with trueno.use(name):
            got = np.asarray(trueno.dequantize(golden, format=NAME), "<f4")
            own = np.asarray(trueno.dequantize(fresh, format=NAME), "<f4")
        differing[name] = int(sha256(got.tobytes()).hexdigest() != GGML_VALUES)
        if wanted is not None:
            differing[name] += int((own.view(np.uint32) != wanted.view(np.uint32)).sum())
    m.note(backends=names, numbers=golden.size // 144 * 256 + (0 if wanted is None else wanted.size))
    m.note(oracles=["ggml's bytes", *["gguf"] * (wanted is not None)], differing=sum(differing.values()))
    wrong = [name for name, count in differing.items() if count]
    m.need(not wrong, f"Q4_K decodes otherwise than in ggml on {', '.join(wrong)}")


@gate("F-TRUENO-003")
def one_source_of_quantization(m: Measurement) -> None:
    """Decode random blocks of every weight format on every backend, and look for other tables in the plugins' modules.

    All backends must give the bits of the core's decoder, which follows the table `FORMATS`; each `Format` and each
    `FORMATS` in a loaded module of a plugin must be the core's own object.
    """
    trueno: Any = import_module("trueno")  # its ops
    rng, names = np.random.default_rng(), _backends()
    formats, wrong = [f for f in FORMATS.values() if f.weights], []
    for f in formats:
        w = trueno.quantize(rng.standard_normal((ROWS, COLUMNS), np.float32), f.name)
        wanted = decode(f, np.asarray(w.bytes)).reshape(ROWS, COLUMNS)
        for name in names:
            with trueno.use(name):
                got = np.asarray(trueno.dequantize(w))
            if not np.array_equal(got.view(np.uint32), wanted.view(np.uint32)):
                wrong.append(f"{f.name} on {name}")
    ours = {id(f) for f in (*FORMATS.values(), *INTERLEAVED.values())}
    packages = {e.manifest.factory.partition(".")[0] for e in registry.entries().values() if e.manifest} - {"trueno"}
    modules = [mod for n, mod in sorted(sys.modules.items()) if n.partition(".")[0] in packages]
    sharing, others = 0, []
    for module in modules:
        held = [(n, v) for n, v in vars(module).items() if isinstance(v, Format) or n == "FORMATS"]
        sharing += any(v is FORMATS for _, v in held)
        others += [f"{module.__name__}.{n}" for n, v in held if v is not FORMATS and id(v) not in ours]
    m.note(formats=len(formats), backends=names, numbers=len(formats) * len(names) * ROWS * COLUMNS, differing=wrong)
    m.note(plugin_modules=len(modules), of_which_use_the_table=sharing, with_their_own=others)
    m.need(not wrong, f"the decoders disagree: {', '.join(wrong)}")
    m.need(not others, f"a plugin has formats of its own: {', '.join(others)}")
    m.need(sharing or not packages, "no loaded module of a plugin uses the core's table of formats")


@gate("F-TRUENO-007")
def row_and_column_major_differ(m: Measurement) -> None:
    """Multiply the same bytes of a 256 × 256 matrix in Q4_K by one vector as rows and as columns, on every backend.

    Each product must be that of its own matrix in float64, D x and Dᵀ x for the decoded D, to 1e-4 of the largest
    result; the two must differ.
    """
    trueno: Any = import_module("trueno")  # its ops
    rng = np.random.default_rng()
    w = _random_blocks(rng, SIDE, 1)
    x = rng.standard_normal(SIDE).astype(np.float32)
    d = decode(FORMATS[NAME], w).reshape(SIDE, SIDE).astype(np.float64)
    rows, columns = d @ x, d.T @ x
    scale = float(np.abs(rows).max())
    names, errors, wrong = _backends(), [], []
    for name in names:
        with trueno.use(name):
            by_row = np.asarray(trueno.quant_matvec(w, x, format=NAME, activations="f32"), np.float64)
            by_column = np.asarray(trueno.quant_matvec_colmajor(w, x, format=NAME), np.float64)
        error = max(float(np.abs(by_row - rows).max()), float(np.abs(by_column - columns).max())) / scale
        apart = float(np.abs(by_row - by_column).max()) / scale
        errors.append(error)
        if not error <= 1e-4 or not apart > 1e-2:
            wrong.append(f"{name} (error {error:.1e}, apart by {apart:.1e})")
    m.note(shape=f"{SIDE}x{SIDE}", bytes=w.size, backends=names, largest_error=max(errors))
    m.note(apart=round(float(np.abs(rows - columns).max()) / scale, 3))
    m.need(not wrong, f"row- and column-major products are not those of D and Dᵀ: {', '.join(wrong)}")


def _backends() -> list[str]:
    """Every installed backend that can run here, also those that run only when they are named.

    One that only this process has registered, as a plan of launches is, belongs to no installation.
    """
    return [name for name, entry in registry.entries().items() if entry.available and not registry.registered(name)]


def _random_blocks(rng: Any, rows: int, per_row: int) -> Any:
    """Random blocks of Q4_K, uint8 [rows, bytes], with finite scales of both signs: some large, some subnormal."""
    blocks = rng.integers(0, 256, (rows * per_row, 144), np.uint8)
    scales = (rng.standard_normal((len(blocks), 2)) * 2.0 ** rng.integers(-20, 3, (len(blocks), 1))).astype(np.float16)
    blocks[:, :4] = scales.view(np.uint8)
    return np.ascontiguousarray(blocks.reshape(rows, per_row * 144))
