"""Instructions that no thread can come to."""

from collections.abc import Iterator

from trueno_cuda.ptx.analyze.entry import Entry
from trueno_cuda.ptx.analyze.finding import Found, Rule

CLOSING = {"ret", "exit", "bra", "trap", "brx"}


def check(entry: Entry) -> Iterator[Found]:
    graph = entry.graph
    for n, block in enumerate(graph.blocks):
        if n in graph.reachable:
            continue
        at = next((at for at in range(block.start, block.end) if graph.code[at].opcode not in CLOSING), None)
        if at is not None and not (n - 1 >= 0 and n - 1 not in graph.reachable):
            yield at, "no thread can come here"


RULE = Rule(
    "dead-code", "medium", "certain",
    "Instructions stand behind a branch or a return that is always taken, and no branch leads to them.",
    "They were meant to run; ptxas removes them without a message.",
    "Put the branch where it belongs, or remove the instructions.",
    bad="ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], 1; bra END; st.global.u32 [%rd1+4], 2; END: ret;",
    good="ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], 1; st.global.u32 [%rd1+4], 2; bra END; END: ret;",
    check=check,
)  # fmt: skip
