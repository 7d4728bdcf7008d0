"""Products of single rows with the experts that they name: each row is quantized once, all products are one region.

A place is a number of `ids`, and a row of the result; its product is that of `quant_matvec`, bit for bit.  The chunks
of the region are runs of rows of all experts that are named, so that threads are busy however many there are.

Floor: the bytes of the experts that are named, once.
"""

from collections.abc import Callable

from trueno.backend import FORMATS

from trueno_simd.kernels.quant import printed
from trueno_simd.kernels.quant.matvec import with_kept_scratch

REPEATED = -2  # what a kernel answers if too many places name one expert
SHARES = 16  # chunks at most
QUANTIZED_AT_ONCE = 1 << 14  # numbers of x that are worth a chunk of their own

TEMPLATE = '''"""quant_experts: single rows of x times experts of <format> blocks."""

from numba import types

from trueno_simd.codecache.entry import kernel_entry
from trueno_simd.llvm.jit import outer
from trueno_simd.kernels.operands import SCRATCH, overlaps, reader, source, target
<imports>
from trueno_simd.kernels.quant.places import QUANTIZED_AT_ONCE, REPEATED, SHARES
from trueno_simd.kernels.quant.printed import CHUNK
from trueno_simd.kernels.quant.regions import share_out
from trueno_simd.kernels.tile import address, clear, get_word, put_word
from trueno_simd.llvm.calls import address_of, pack

JOB, ROWS_JOB = reader(13), reader(5)
<functions>


@outer
def quantize_rows(args, index):
    x, codes, room, k, last = ROWS_JOB(args)
    share = max(QUANTIZED_AT_ONCE // k, 1)
    for t in range(index * share, min((index + 1) * share, last)):
        <quantize>
    return 0


@outer
def rows(args, index):
    w, w_row, ids, some, each, x, room, k, y, n, runs, total, share = JOB(args)
    for b in range(index * share, min((index + 1) * share, total)):
        place, i = b // runs, b % runs * ROWS
        if some:
            place = get_word(some, place)
        weights = w + (get_word(ids, place) * n + i) * w_row
        row, to, height = x + place // each * room, y + 4 * (place * n + i), min(ROWS, n - i)
        <product>
    return 0


@kernel_entry(types.intp(source(types.uint8, 2), source(types.float32, 2), source(types.int64, 1),
                         source(types.int64, 1), target(types.float32, 2), types.int64, SCRATCH))
def kernel(w, x, ids, some, out, most, scratch):
    places, n = out.shape
    t, k = x.shape
    if k % <elements> or w.shape[1] != k // <elements> * <nbytes> or t == 0 or places % t or places != ids.size:
        return -1
    if overlaps(out, w) or overlaps(out, x) or overlaps(out, ids):
        return -1
    experts = w.shape[0] // n if n else 0
    wrong = 0
    for i in range(places):
        wrong |= (ids[i] < 0) | (ids[i] >= experts)
    if wrong:
        return -1
    if k == 0 or out.size == 0:
        clear(address(out), out.nbytes)
        return 0
    room = <room>
    need = 64 + max(t * room, experts * 8)
    if scratch.size < need:
        return need
    start = (address(scratch) + 63) // 64 * 64
    if some.size == 0 and places >= most:
        clear(start, experts * 8)
        for i in range(places):
            count = get_word(start, ids[i]) + 1
            if count >= most:
                return REPEATED
            put_word(start, ids[i], count)
    <prepare>
    count = some.size if some.size else places
    runs = (n + ROWS - 1) // ROWS
    chunks = min(max(count * n * w.shape[1] // CHUNK, 1), SHARES)
    share = (count * runs + chunks - 1) // chunks
    args = pack((address(w), w.shape[1], address(ids), address(some) if some.size else 0, places // t, start, room, k,
                 address(out), n, runs, count * runs, share))
    share_out(address_of(rows), args, (count * runs + share - 1) // share)
    return 0
'''

QUANTIZED = {
    "imports": """from trueno_simd.kernels.quant.activations import quantized
from trueno_simd.kernels.quant.vector.dots import ROWS, quantized_rows""",
    "functions": """quantize, product = quantized("<partner>"), quantized_rows("<format>")""",
    "quantize": """row = codes + t * room
        quantize(x + t * k * 4, k, row, row + k + k // 8, row + k)""",
    "product": "product(weights, w_row, row, row + k + k // 8, row + k, k, to, height)",
    "room": "(k + k // 8 + k // <block> * 4 + 63) // 64 * 64",
    "prepare": """packed = max(QUANTIZED_AT_ONCE // k, 1)
    share_out(address_of(quantize_rows), pack((address(x), start, room, k, t)), (t + packed - 1) // packed)""",
}
FLOAT = {
    "imports": "from trueno_simd.kernels.quant.vector.floats import ROWS, float_rows",
    "functions": """product = float_rows("<format>")""",
    "quantize": "pass",
    "product": "product(weights, w_row, row, k, to, height)",
    "room": "k * 4",
    "prepare": "start = address(x)",
}


def kernel(name: str, activations: str) -> Callable[..., int]:
    """The kernel (w, x, ids, some, out, most) of a format: out[i] = the expert ids[i] times x[i // each].

    each: how many places a row of x has, one row's after another's.
    some: the places that are computed; all if it is empty, but REPEATED if `most` of them name one expert.
    """
    floats, text = activations == "f32", TEMPLATE
    for word, code in (FLOAT if floats else QUANTIZED).items():
        text = text.replace(f"<{word}>", code)
    partner = FORMATS[FORMATS[name].activations]
    words = {} if floats else {"partner": partner.name, "block": partner.elements}
    compiled = printed.compiled(f"quant_experts_{activations}", text, name, **words)
    return with_kept_scratch(compiled)
