"""The natural loops of a graph.

Each has one head, which every way into it passes.  Of two loops one lies in the other, or they share no block: so each
block has an innermost one, and the blocks can be listed so that those of every loop are neighbours.
"""

from functools import cached_property


class Loops:
    """heads: of the loops, in the order of the blocks that lead back.  inner: the head of the innermost loop around a
    block.  outer: the head of the loop around a loop.  depth: loops around a loop's head.  inwards: the heads, each
    before those within its loop.
    """

    def __init__(self, order: list[int], back: list[tuple[int, int]], before: list[list[int]]) -> None:
        """order: blocks in reverse postorder.  back: edges to a block that dominates where they begin.  before: the
        blocks that lead to each."""
        self.order = order
        self.inner: dict[int, int] = {}
        self.outer: dict[int, int] = {}
        latches: dict[int, list[int]] = {}
        for n, head in back:
            latches.setdefault(head, []).append(n)
        self.heads = list(latches)
        place = {n: k for k, n in enumerate(order)}
        top: dict[int, int] = {}  # of a head, one around it that is known so far: paths to the outermost are compressed
        for head in sorted(latches, key=place.__getitem__, reverse=True):
            self.inner[head] = head
            todo = latches[head]
            while todo:
                n = todo.pop()
                at = self._outermost(n, top)
                if at == head:
                    continue
                if at is None:
                    self.inner[n] = head
                    todo += before[n]
                else:
                    top[at] = self.outer[at] = head
                    todo += before[at]
        self.inwards = sorted(latches, key=place.__getitem__)
        self.depth: dict[int, int] = {}
        for head in self.inwards:
            self.depth[head] = self.depth[self.outer[head]] + 1 if head in self.outer else 1

    def _outermost(self, block: int, top: dict[int, int]) -> int | None:
        """The head of the outermost loop around a block that is known so far."""
        at = self.inner.get(block)
        if at is None:
            return None
        path = []
        while at in top:
            path.append(at)
            at = top[at]
        for head in path[:-1]:
            top[head] = at
        return at

    def around_any(self, heads: set[int]) -> set[int]:
        """The heads of some loops and of the loops around them."""
        result = set(heads)
        for head in reversed(self.inwards):
            if head in result and head in self.outer:
                result.add(self.outer[head])
        return result

    def around(self, block: int) -> int:
        """How many loops a block lies in."""
        return self.depth[self.inner[block]] if block in self.inner else 0

    # ---- bodies ---------------------------------------------------------------------------------

    @cached_property
    def _listed(self) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """The blocks that lie in loops, those of each side by side; where each stands; where each loop ends."""
        own: dict[int, list[int]] = {head: [] for head in self.heads}
        within: dict[int, list[int]] = {head: [] for head in self.heads}
        for n in self.order:
            if n in self.inner:
                own[self.inner[n]].append(n)
        for head, outer in self.outer.items():
            within[outer].append(head)
        listed: list[int] = []
        place: dict[int, int] = {}
        end: dict[int, int] = {}
        todo = [(head, False) for head in self.heads if head not in self.outer]
        while todo:
            head, done = todo.pop()
            if done:
                end[head] = len(listed)
                continue
            for n in own[head]:  # the head is the first, as it comes before the others in reverse postorder
                place[n] = len(listed)
                listed.append(n)
            todo.append((head, True))
            todo += [(one, False) for one in within[head]]
        return listed, place, end

    def place(self, block: int) -> int:
        """Where a block stands in a list in which the blocks of every loop are neighbours; −1 for one in no loop."""
        return self._listed[1].get(block, -1)

    def span(self, head: int) -> tuple[int, int]:
        """The places of a loop's blocks: from the first up to the second."""
        return self._listed[1][head], self._listed[2][head]

    def body(self, head: int) -> list[int]:
        """The blocks of a loop."""
        first, end = self.span(head)
        return self._listed[0][first:end]

    def has(self, head: int, block: int) -> bool:
        """Whether a block lies in a loop."""
        first, end = self.span(head)
        return first <= self.place(block) < end

    def size(self, head: int) -> int:
        first, end = self.span(head)
        return end - first

    def common(self, one: int, other: int) -> int | None:
        """The head of the innermost loop around two blocks."""
        head = self.inner.get(one)
        while head is not None and not self.has(head, other):
            head = self.outer.get(head)
        return head

    def left(self, block: int, after: list[int]) -> int:
        """How many loops are around both a block and each of its successors; a negative one is the end."""
        least = self.around(block)
        for t in after:
            head = self.inner.get(t) if t >= 0 else None
            if head is not None and not self.has(head, block):
                head = self.outer.get(head)  # a way into a loop comes to its head
            least = min(least, 0 if head is None else self.depth[head])
        return least
