"""Orders and trees of directed graphs: each takes time in proportion to the edges, or times a logarithm."""


def reverse_postorder(root: int, follow: list[list[int]]) -> list[int]:
    order: list[int] = []
    reached = {root}
    stack = [(root, iter(follow[root]))]
    while stack:
        node, rest = stack[-1]
        for t in rest:
            if t not in reached:
                reached.add(t)
                stack.append((t, iter(follow[t])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def immediate(root: int, follow: list[list[int]]) -> dict[int, int]:
    """Immediate dominators of what the root leads to; the root is its own (Lengauer and Tarjan 1979, with compression
    of paths: no graph takes more than edges times a logarithm)."""
    number, nodes, parent = {root: 0}, [root], [0]
    stack = [(0, iter(follow[root]))]
    while stack:
        at, rest = stack[-1]
        for t in rest:
            if t not in number:
                number[t] = len(nodes)
                parent.append(at)
                stack.append((len(nodes), iter(follow[t])))
                nodes.append(t)
                break
        else:
            stack.pop()
    before: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        for t in follow[node]:
            before[number[t]].append(at)
    semi, label, above = list(range(len(nodes))), list(range(len(nodes))), [-1] * len(nodes)
    waiting: list[list[int]] = [[] for _ in nodes]
    result = parent[:]

    def least(at: int) -> int:
        """Of the nodes above one that are linked already, and itself, the one whose semidominator comes first."""
        if above[at] < 0:
            return at
        path, node = [], at
        while above[above[node]] >= 0:
            path.append(node)
            node = above[node]
        for node in reversed(path):
            over = above[node]
            if semi[label[over]] < semi[label[node]]:
                label[node] = label[over]
            above[node] = above[over]
        return label[at]

    for at in range(len(nodes) - 1, 0, -1):
        semi[at] = min(semi[at], *(semi[least(p)] for p in before[at]))
        waiting[semi[at]].append(at)
        above[at] = parent[at]
        for node in waiting[parent[at]]:
            best = least(node)
            result[node] = best if semi[best] < semi[node] else parent[at]
        waiting[parent[at]] = []
    for at in range(1, len(nodes)):
        if result[at] != semi[at]:
            result[at] = result[result[at]]
    return {node: nodes[result[at]] for at, node in enumerate(nodes)}


def intervals(parent: dict[int, int], root: int) -> tuple[dict[int, int], dict[int, int]]:
    """When a walk over the tree enters and leaves each node: ancestors contain their descendants."""
    children: dict[int, list[int]] = {n: [] for n in parent}
    for n, p in parent.items():
        if n != p:
            children[p].append(n)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    clock = 0
    stack = [(root, False)] if parent else []
    while stack:
        node, done = stack.pop()
        clock += 1
        if done:
            last[node] = clock
            continue
        first[node] = clock
        stack.append((node, True))
        stack += [(c, False) for c in children[node]]
    return first, last


def sinks(nodes: list[int], follow: list[list[int]]) -> list[set[int]]:
    """The parts that no edge leaves, of a graph in which every node has a way on.

    nodes: all of them, in the order in which they are passed.  Parts are strong components (Tarjan 1972).
    """
    result: list[set[int]] = []
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    leaves: set[int] = set()  # nodes of components from which some edge leads to another one
    held: list[int] = []
    inside: set[int] = set()
    for seed in nodes:
        if seed in index:
            continue
        index[seed] = low[seed] = len(index)
        held.append(seed)
        inside.add(seed)
        stack = [(seed, iter(follow[seed]))]
        while stack:
            at, rest = stack[-1]
            for t in rest:
                if t not in index:
                    index[t] = low[t] = len(index)
                    held.append(t)
                    inside.add(t)
                    stack.append((t, iter(follow[t])))
                    break
                if t in inside:
                    low[at] = min(low[at], index[t])
                else:
                    leaves.add(at)
            else:
                stack.pop()
                if low[at] == index[at]:
                    start = len(held) - 1
                    while held[start] != at:
                        start -= 1
                    part = set(held[start:])
                    del held[start:]
                    inside -= part
                    if leaves.isdisjoint(part):
                        result.append(part)
                    if stack:
                        leaves.add(stack[-1][0])
                elif stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[at])
    return result
