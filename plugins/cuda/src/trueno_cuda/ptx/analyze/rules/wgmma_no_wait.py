"""Accumulators that are touched while a product of a warp group still writes them."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule
from trueno_cuda.ptx.analyze.products import in_flight
from trueno_cuda.ptx.analyze.rules.wgmma_no_fence import COMMIT, FENCE, HEAD, PRODUCT, STORE, WAIT


def check(entry: Entry) -> Iterator[Found]:
    reported: set[int] = set()
    for at, product in in_flight(entry):
        if at not in reported:
            reported.add(at)
            yield at, f"the product of line {entry.code[product].line} may still write a register that this touches"


RULE = Rule(
    "wgmma-no-wait", "critical", "high",
    "An instruction touches an accumulator of wgmma.mma_async, and some way leads there without a wait for the group "
    "that the product was committed to.",
    "Products run beside the warp group that starts them, and write their sums when they end.",
    "wgmma.commit_group behind the products, and wgmma.wait_group before their sums are used.",
    bad=HEAD + FENCE + PRODUCT + COMMIT + STORE,
    good=HEAD + FENCE + PRODUCT + COMMIT + WAIT + STORE,
    check=check,
)  # fmt: skip
