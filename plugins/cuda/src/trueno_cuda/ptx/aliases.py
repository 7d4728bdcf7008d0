"""Names from CUDA, Triton, Numba and others, and their names here: the hints for unknown names.

Keys are in small letters without underscores, so that `__syncthreads`, `sync_threads` and `syncthreads` are one.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from trueno_cuda.ptx.errors import suggestion

LN_2: Final = "0.6931471805599453"
LOG2_E: Final = "1.4426950408889634"

_KERNEL = """
threadidx threadid thread   k.tid, k.tid_y and k.tid_z
tidx                        k.tid
blockidx blockid block programid ctaidx   k.ctaid, k.ctaid_y and k.ctaid_z
blockdim ntidx numthreads   k.threads, a Python int, or k.ntid, k.ntid_y and k.ntid_z
griddim nctaidx numprograms numblocks   k.nctaid, k.nctaid_y and k.nctaid_z
globalid gid                k.ctaid * k.threads + k.tid
warpsize                    32, on every architecture
laneid                      k.lane
warpid                      k.warp
numwarps                    k.warps
syncthreads barrier bar barsync wait   k.sync()
syncwarp                    k.sync_warp()
clustersync synccluster     k.sync_cluster()
threadfence membar memfence   k.fence("gpu"), or "block" or "system"
log ln logf                 k.log2(x) * {ln2}: PTX has the logarithm to base 2 alone
log10 log10f                k.log2(x) * 0.3010299956639812: PTX has the logarithm to base 2 alone
exp expf                    k.exp2(x * {log2e}): PTX has powers of 2 alone
pow power powf              k.exp2(y * k.log2(x)), for x above 0
sigmoid                     1.0 / (1.0 + k.exp2(x * -{log2e}))
lg2 log2f                   k.log2(x)
ex2 exp2f                   k.exp2(x)
square                      x * x
reciprocal inv              k.rcp(x), or 1.0 / x
invsqrt rsqrtf              k.rsqrt(x)
fabs fabsf                  k.abs(x)
fmax fmaxf maximum          k.max(a, b)
fmin fminf minimum          k.min(a, b)
sqrtf                       k.sqrt(x)
sinf                        k.sin(x)
cosf                        k.cos(x)
tanhf                       k.tanh(x)
floorf                      k.floor(x)
ceilf                       k.ceil(x)
truncf                      k.trunc(x)
roundf rintf                k.round(x)
fmaf muladd                 k.fma(a, b, c)
mod fmod fmodf              a % b, of unsigned integers, or k.rem(a, b)
cdiv ceildiv                -(-a // b) of Python's ints, (a + b - 1) // b of unsigned values
clamp clip                  k.min(k.max(x, low), high)
erf erff gelu atan atanf sinh cosh tan tanf asin acos   exp2, log2, sin, cos, tanh and rsqrt, which are all that PTX has
sum reducesum redsum        k.block_sum(x), or k.warp_sum(x)
reduce blockredux           k.block_reduce(x, "add"), or k.warp_reduce(x, "add")
reducemax redmax            k.block_max(x), or k.warp_max(x)
reducemin redmin            k.block_min(x), or k.warp_min(x)
mean blockmean              k.block_sum(x) * (1.0 / n)
argmax                      k.block_argmax(x, i), or k.warp_argmax(x, i)
warpshuffle shflsync shfl   k.shuffle(x, "xor", 1), or "down", "up" and "idx"
shfldown shfldownsync shuffledown   k.shuffle(x, "down", 1)
shflup shflupsync shuffleup   k.shuffle(x, "up", 1)
shflxor shflxorsync shflbfly shufflexor   k.shuffle(x, "xor", 1)
broadcast shflidx           k.shuffle(x, "idx", lane)
ballot ballotsync           k.vote("ballot", c)
any anysync                 k.vote("any", c)
all allsync                 k.vote("all", c)
activemask                  k.active_mask()
atomicadd atomicmax atomicmin atomiccas atomicexch   x.atomic("add", i, v), or x.reduce("add", i, v), of a pointer x
ld ldglobal                 x.load(i), of a pointer x
st stglobal                 x.store(i, v), of a pointer x
sharedmemory smem sharedarray allocshared   k.shared(f32, 64, 65)
registers array regs        k.vars(f32, n), or k.local(f32, n) for indices known on the GPU only
zeros variable accumulator  k.var(f32, 0.0), or k.vars(f32, n)
where ternary               k.select(c, a, b), or where=c of a load or store
if cond branch              `with k.when(c):`
else elif                   `with k.otherwise():`
for fori arange             `for i in k.range(n):`
while dowhile               `with k.loop() as loop:` and loop.leave_if(c)
break                       loop.leave_if(c), in `with k.loop() as loop:`
exit return ret             `with k.when(c):` around the rest
cast astype convert int float   x.to(f32)
bitcast reinterpretcast view asint asfloat   x.bits(u32)
popcount popcll             k.popc(x)
clzll                       k.clz(x)
dot matmul                  k.mma(shape, acc, a, b)
memcpyasync cpasync asynccopy   k.copy_async(...), then k.async_commit() and k.async_wait()
cpasyncbulk tma             k.copy_bulk(...), or k.copy_tensor(...)
print printf                an array of your own: a kernel cannot print, but store what you want to see
assert deviceassert         k.trap() in a `with k.when(c):`
ptx inline                  k.asm("brev.b32 {out}, {0};", u32, [x])
mbar                        k.mbarrier()
"""
_VALUE = """
astype cast convert   x.to({type})
view bitcast   x.bits(u32)
float   x.to(f32)
int item   nothing in Python: it exists on the GPU only
dtype   x.type
load atomic reduce   a pointer's: annotate the parameter with ptr(f32)
store   a pointer's: annotate the parameter with ptr(f32)
set update add fma   a Var's: start it with k.var({type}, 0)
sum max min   k.block_sum(x), k.block_max(x), k.block_min(x), or those of a warp
"""
_POINTER = """
ld get read getitem   load(i)
st set write put setitem   store(i, value)
atomicadd   atomic("add", i, v), or reduce("add", i, v)
astype view to   cast(f16)
shape size len   nothing: a pointer has no length; pass it as a parameter, n: u32
dtype type   element
"""


def _table(rows: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for row in rows.strip().splitlines():
        names, _, replacement = row.partition("   ")
        table |= dict.fromkeys(names.split(), replacement.strip().replace("{ln2}", LN_2).replace("{log2e}", LOG2_E))
    return table


KERNEL: Final = _table(_KERNEL)
VALUE: Final = _table(_VALUE)
POINTER: Final = _table(_POINTER)


def instead(name: str, guesses: Mapping[str, str], known: Iterable[str]) -> str:
    """`; here it is k.tid`, or `; did you mean "rsqrt"?`, or nothing."""
    replacement = guesses.get(name.replace("_", "").lower())
    return f"; here that is {replacement}" if replacement else suggestion(name, known)
