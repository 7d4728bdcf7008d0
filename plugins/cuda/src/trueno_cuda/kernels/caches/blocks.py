"""attention_decode by matrix products of a warp over caches in q8_0, whose heads are multiples of 64.

As `mma`, but for what blocks change:

    scores     codes are whole numbers, exact in float16, and 32 numbers of a key are one block: its products are summed
               alone, and then multiplied by the block's scale
    values     codes are tf32, and weights times a block's scale are two parts of tf32, which have float32's range

A row begins at a multiple of four bytes, a block at an even one: every second block is read by words that begin two
bytes before its codes.
"""

import itertools
from typing import Any

from trueno_cuda.kernels.caches.cells import CODES, HALVES, SCALE, Rows
from trueno_cuda.kernels.caches.shares import NOWHERE
from trueno_cuda.kernels.caches.warp import Warp
from trueno_cuda.ptx import Builder, Value, f16, f16x2, f32, tf32, u32

SIGNS = 0x80808080
"""Makes bytes of codes ones of codes + 128."""
THOUSAND, TO_HALVES = 0x64646464, (0x4140, 0x4342)
"""The upper byte of float16 numbers from 1024 on; how two bytes of a word become such numbers."""
OFF = 0x64806480
"""1024 + 128, twice."""
LARGE, OFF_LARGE = 0x4B000000, float(2**23 + 128)
"""2^23 as float32, whose last byte may be any."""
WORD = 2
"""Halves of a word."""


def halves(k: Builder, word: Value) -> list[Value]:
    """Four codes as two registers of float16."""
    biased = word ^ SIGNS
    off = k.const(u32, OFF).bits(f16x2)
    return [k.sub(k.prmt(biased, THOUSAND, how).bits(f16x2), off) for how in TO_HALVES]


def singles(k: Builder, word: Value) -> list[Value]:
    """Four codes as tf32."""
    biased = word ^ SIGNS
    return [(k.prmt(biased, LARGE, 0x7440 | i).bits(f32) - OFF_LARGE).bits(tf32) for i in range(4)]


def _words(k: Builder, line: Any, block: int, first: Value, count: int, where: Value) -> list[Value]:
    """So many words of codes of a block, from its word `first` on; line: the row, in words."""
    begin, odd = divmod(block * HALVES + CODES, WORD)
    read = [line.load(first + (begin + i), where=where) for i in range(count + odd)]
    return [k.shf_r(a, b, 16) for a, b in itertools.pairwise(read)] if odd else read


class Blocks(Warp):
    """A warp's work on blocks.  Of a lane 4 g + c: 8 codes of each block of keys g and g + 8, and four codes of each
    block of values of its four keys."""

    def declare(self) -> None:
        k = self.k
        self.key_words = [[k.vars(u32, 2) for _ in range(0, self.d, 32)] for _ in range(2)]
        self.key_scales = [k.vars(f32, self.d // 32) for _ in range(2)]
        self.value_words = [k.vars(u32, self.e // 32) for _ in range(4)]
        self.value_scales = [k.vars(f32, self.e // 32) for _ in range(4)]
        self.columns = [(32 * block + i, 4) for block in range(self.e // 32) for i in (0, 2)]

    def _scales(self, line: Any, registers: Any, where: Value) -> None:
        for block, register in enumerate(registers):
            register.set(line.load(block * HALVES + SCALE, where=where).bits(f16).to(f32))

    def read_keys(self, slots: Value) -> None:
        k, rows = self.k, Rows(self.form, self.d)
        for half in range(2):
            slot = k.shuffle(slots, "idx", self.g + 8 * half)
            there = slot != NOWHERE
            line = self.share.line(self.p.keys, slot, rows, k.nctaid_y)
            for block, registers in enumerate(self.key_words[half]):
                words = _words(k, line.cast(u32), block, self.c * 2, 2, there)
                for register, word in zip(registers, words, strict=True):
                    register.set(word)
            self._scales(line, self.key_scales[half], there)

    def read_values(self, slots: Value) -> None:
        k, rows = self.k, Rows(self.form, self.e)
        for i, j in enumerate((0, 1, 8, 9)):
            slot = k.shuffle(slots, "idx", 2 * self.c + j)
            there = slot != NOWHERE
            line = self.share.line(self.p.values, slot, rows, k.nctaid_y)
            for block, register in enumerate(self.value_words[i]):
                register.set(_words(k, line.cast(u32), block, self.g, 1, there)[0])
            self._scales(line, self.value_scales[i], there)

    def scores(self, n: int) -> list[Value]:
        k, total = self.k, self.k.vars(f32, 4, 0.0)
        for block in range(self.d // 32):
            upper, lower = ([x for w in words[block] for x in halves(k, w.value)] for words in self.key_words)
            sums = [k.vars(f32, 4, 0.0) for _ in range(self.count)]
            for part, acc in enumerate(sums):
                fragment = self.fragment(n, block, part)
                for i in (0, 2):
                    a = [upper[i], lower[i], upper[i + 1], lower[i + 1]]
                    k.mma("m16n8k16", acc, a, fragment[i : i + 2])
            for i in range(4):
                whole = sums[0][i].value
                for acc in sums[1:]:
                    whole = whole + acc[i]
                total[i].fma(whole, self.key_scales[i // 2][block].value)
        return [x * self.inverses[n][i % 2] for i, x in enumerate(total)]

    def parts(self, weights: list[Value]) -> list[Value]:
        """Weights as they are: blocks have scales of their own."""
        return weights

    def add(self, weights: list[list[Value]]) -> None:
        k = self.k
        for block in range(self.e // 32):
            codes = [singles(k, words[block].value) for words in self.value_words]
            for n in self.tiles:
                large, small = [], []
                for weight, scales in zip(weights[n], self.value_scales, strict=True):
                    x = weight * scales[block].value
                    large.append(x.to(tf32))
                    small.append((x - large[-1].bits(f32)).to(tf32))
                for pair in range(2):
                    sums = self.sums[2 * block + pair][n]
                    for j in (0, 2):
                        a = [codes[j + i][2 * pair + b] for i in range(2) for b in range(2)]
                        for part in (small, large):
                            k.mma("m16n8k8", sums, a, part[j : j + 2])
