"""The parts of a persistent kernel's text that are the same in each (`fold`): start, wait, a block's place, and end.

%entry is the address of the current step, %target what the counter has when all blocks have ended the step before it:
the number of blocks, %everyone, for each step so far.  %block is the block of the step's grid that is computed.
"""

from typing import Final

SPINS: Final = 4_000_000
"""Polls of the counter, each of about a microsecond, after which a block traps."""
WAIT: Final = f"""\
{{
    .reg .pred %waits, %goes;
    .reg .u32 %seen, %polls;
    setp.ne.u32 %waits, %thread, 0;
    @%waits bra $passed;
    mov.u32 %polls, 0;
$poll:
    ld.acquire.gpu.global.u32 %seen, [%count];
    sub.u32 %seen, %seen, %target;
    setp.lt.u32 %goes, %seen, 2147483648;
    @%goes bra $passed;
    add.u32 %polls, %polls, 1;
    setp.lt.u32 %waits, %polls, {SPINS};
    @%waits bra $poll;
    trap;
$passed:
    bar.sync 0;
}}"""
"""Thread 0 polls until the counter is not below the target; then the block goes on, and sees what all have written."""
START: Final = """\
    .reg .u64 %entry, %count, %stride;
    .reg .u32 %stride_bytes, %steps, %target, %thread, %everyone, %section, %block, %blocks, %arrived, %last;
    .reg .u32 %grid_x, %grid_y, %at_x, %at_y, %at_z;
    .reg .pred %is;

    ld.param.u64 %entry, [arg_table];
    cvta.to.global.u64 %entry, %entry;
    ld.param.u64 %count, [arg_count];
    cvta.to.global.u64 %count, %count;
    ld.param.u32 %steps, [arg_steps];
    ld.param.u32 %stride_bytes, [arg_stride];
    cvt.u64.u32 %stride, %stride_bytes;
    mov.u32 %thread, %tid.x;
    mov.u32 %everyone, %nctaid.x;
    mov.u32 %target, 0;
    mul.lo.u32 %last, %everyone, %steps;
    sub.u32 %last, %last, 1;
    griddepcontrol.wait;
$step:
    ld.global.v4.u32 {%section, %grid_x, %grid_y, %blocks}, [%entry];
    mov.u32 %block, %ctaid.x;
    setp.ge.u32 %is, %block, %blocks;
    @%is bra $idle;"""
PLACE: Final = """\
    rem.u32 %at_x, %block, %grid_x;
    div.u32 %at_z, %block, %grid_x;
    rem.u32 %at_y, %at_z, %grid_y;
    div.u32 %at_z, %at_z, %grid_y;"""
"""Where a block stands in the grid of its step, which has its blocks in the order of x, y, z."""
END: Final = f"""\
$idle:
{WAIT}
$arrive:
    bar.sync 0;
    setp.ne.u32 %is, %thread, 0;
    @%is bra $next;
    atom.release.gpu.global.add.u32 %arrived, [%count], 1;
    setp.ne.u32 %is, %arrived, %last;
    @%is bra $next;
    st.relaxed.gpu.global.u32 [%count], 0;
$next:
    add.u32 %target, %target, %everyone;
    add.u64 %entry, %entry, %stride;
    sub.u32 %steps, %steps, 1;
    setp.ne.u32 %is, %steps, 0;
    @%is bra $step;
    ret;"""
"""A block without work waits all the same: what it does early in the next step needs the end of the step before."""
