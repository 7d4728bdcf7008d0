"""Bytes in arrays of u32, the first of a word in its lowest bits; an address counts bytes from an array's beginning."""

from typing import Any

from trueno.backend import Rates
from trueno.errors import KernelError

from trueno_wgpu.device.gpu import Buffer, Limits, View

MOST = 1 << 16
"""The bytes of the largest page."""
SHARED = 4096
"""The bytes of the largest page that is kept in workgroup memory."""

RATES = Rates(launch_s=1e-4, flops=1e13, bytes=2e10, link_s=6e-5, link_bytes=8e9)
"""Of what searches and what decodes: on an H200 1.4e10 and 2.7e10 bytes a second were measured."""

SPAN = """\
// The bits of bytes `low` to before `high`, one to four of the same word.
fn span(low: u32, high: u32) -> u32 {
    return (0xffffffffu >> (8u * (4u - (high - low)))) << (8u * (low & 3u));
}
"""
PUT = """\
// Bytes `low` to before `high`, of one word, become the lowest ones of `bytes`.  They are 0 before, and written once.
fn put(low: u32, high: u32, bytes: u32) {
    let mask = span(low, high);
    let bits = (bytes << (8u * (low & 3u))) & mask;
    if (mask == 0xffffffffu) {
        atomicStore(&ARRAY[low >> 2u], bits);
    } else {
        atomicOr(&ARRAY[low >> 2u], bits);
    }
}
"""
SETTLE = """\
// A word becomes `bits`, as far as it is in the page that begins at byte `first`: other workgroups may write its rest.
fn settle(first: u32, word: u32, bits: u32) {
    let mask = span(max(4u * word, first), min(4u * word + 4u, first + sizes.page));
    if (mask == 0xffffffffu) {
        atomicStore(&ARRAY[word], bits);
    } else {
        atomicAnd(&ARRAY[word], ~mask);
        atomicOr(&ARRAY[word], bits & mask);
    }
}
"""
_FOUR = """\
fn NAME(at: u32) -> u32 {
    let shift = 8u * (at & 3u);
    return (FIRST >> shift) | ((SECOND << 1u) << (31u - shift));
}
"""


def four(name: str, array: str, *, atomic: bool = False) -> str:
    """`fn name(at)`: the four bytes from byte `at` on, of an array of words or of atomic words; outside, any bytes."""
    words = [f"{array}[{word}]" for word in ("at >> 2u", "(at + 4u) >> 2u")]  # right for an `at` of -3 to -1, too
    first, second = (f"atomicLoad(&{word})" if atomic else word for word in words)
    return _FOUR.replace("NAME", name).replace("FIRST", first).replace("SECOND", second)


def padded(nbytes: int) -> int:
    """Bytes of whole words, at least one: what is bound for so many bytes."""
    return max(-(-nbytes // 4) * 4, 4)


def rows(x: Any, first: int, count: int, row_bytes: int) -> View:
    """Rows of an array as they are bound; the first begins at a multiple of 256 bytes."""
    return View(x.buffer, first * row_bytes, padded(count * row_bytes))


def complete(op: str, name: str, x: Any, limits: Limits) -> Buffer | View:
    """All of an array; KernelError if one binding cannot hold it."""
    if padded(x.nbytes) > limits.binding:
        raise KernelError(
            f"{op}: {name} has {x.nbytes} bytes, and this adapter binds {limits.binding}; "
            "split the pages among several calls, or use another backend"
        )
    return View(x.buffer, 0, padded(x.nbytes))
