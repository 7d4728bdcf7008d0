"""One plain fault for each tool of compute-sanitizer: a tool that is silent about it does not work on this machine."""

import io

import numpy as np

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry control(.param .u64 x, .param .u64 y)
{
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<6>;
  .shared .align 4 .b8 words[256];
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
"""
TAIL = """
  st.global.u32 [%rd5], %r2;
  ret;
}
"""
RACE = """
  mov.u32 %r2, words; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; sub.u32 %r5, %r2, %r3;
  st.shared.u32 [%r4], %r1;
  ld.shared.u32 %r2, [%r5+252];
"""
BODIES = {
    "memcheck": "  ld.global.u32 %r2, [%rd4+4096];",
    "racecheck": RACE,
    "synccheck": "  mov.u32 %r2, 7; setp.lt.u32 %p1, %r1, 16; @!%p1 bra SKIP; bar.sync 0;\nSKIP:",
    "initcheck": "  ld.global.u32 %r2, [%rd4];",
}
"""By tool: x is 256 bytes that nothing sets, y 256 bytes of zeros, and a block has 64 threads."""


def controls() -> dict[str, tuple[str, bytes]]:
    """By tool: the text, and its operands as .npz."""
    file = io.BytesIO()
    np.savez(file, e0=np.zeros(64, np.uint32), p1=np.zeros(64, np.uint32))
    return {tool: (HEAD + body + TAIL, file.getvalue()) for tool, body in BODIES.items()}
