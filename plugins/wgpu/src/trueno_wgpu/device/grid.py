"""Grids of workgroups: WebGPU allows 65 535 of them along an axis."""


def fold(groups: int, limit: int) -> tuple[int, int, int]:
    """A grid of at least `groups` workgroups; the shader's flat number of one is `wid.x + wid.y * ngroups.x`.

    Up to `limit` it is one row.  Beyond, the grid has fewer than one row's worth too many, so shaders check that flat
    number against what there is to do.
    """
    if groups <= limit:
        return max(groups, 1), 1, 1
    rows = -(-groups // limit)
    return -(-groups // rows), rows, 1
