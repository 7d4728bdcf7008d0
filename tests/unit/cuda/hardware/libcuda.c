/* A libcuda that has no GPU: it writes down what it is asked for, copies memory of the host's, and fails when told to.
   "Device" addresses are the host's.  Contexts are current by thread, as the real one's. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN 4096

typedef struct { unsigned grid[3], block[3], shared; void *stream; void *attributes; unsigned count; } Config;
typedef struct { unsigned grid[3], block[3], shared, attributes; int attribute, value; uint64_t stream, function;
                 unsigned char params[512]; } Launch;
typedef struct { char name[128]; int registers, dynamic, wide; void *context; } Function;

Launch launches[SEEN];
int launched, loaded, unloaded, linked, granted, replayed, captured, synchronized, pinned_now, entered;
int devices = 1, major = 9, minor = 0, mode = 0, version = 13000, registers = 32, linked_registers = 32;
int reach = 1, refused;
char order[4096];
int param_sizes[64], params;
uint64_t known;
char failing[64];
int fail_code, fail_times;
static __thread void *current;
static __thread void *stack[16];
static __thread int depth;
static void *capturing[64];

static int told(const char *name)
{
    if (fail_times && !strcmp(failing, name)) { fail_times--; return fail_code; }
    return 0;
}
static void note(const char *name, void *context, void *what)
{
    size_t n = strlen(order);
    snprintf(order + n, sizeof order - n, "%s %lx %lx\n", name, (long)(uintptr_t)context, (long)(uintptr_t)what);
}
#define TOLD int told_ = told(__func__); if (told_) return told_
#define CONTEXT if (!current) return 201; TOLD

int cuInit(unsigned flags) { TOLD; return devices ? 0 : 100; }
int cuDriverGetVersion(int *out) { *out = version; return 0; }
int cuGetErrorName(int code, const char **out)
{
    *out = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : code == 218 ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_STUB";
    return 0;
}
int cuGetErrorString(int code, const char **out) { *out = "said by the stub"; return 0; }
int cuDeviceGetCount(int *out) { *out = devices; return 0; }
int cuDeviceGet(int *out, int n) { if (n < 0 || n >= devices) return 101; *out = n; return 0; }
int cuDeviceGetName(char *out, int n, int device) { strncpy(out, "Stub GPU", n); return 0; }
int cuDeviceGetPCIBusId(char *out, int n, int device) { strncpy(out, "0000:01:00.0", n); return 0; }
int cuDeviceTotalMem_v2(size_t *out, int device) { *out = 1 << 30; return 0; }
int cuDeviceGetAttribute(int *out, int which, int device)
{
    *out = which == 75 ? major : which == 76 ? minor : which == 16 ? 132 : which == 97 ? 232448 : which == 20 ? mode : 0;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **out, int device) { TOLD; *out = (void *)(uintptr_t)(0x1000 + device); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { TOLD; current = context; entered++; return 0; }
int cuCtxGetCurrent(void **out) { *out = current; return 0; }
int cuCtxPushCurrent_v2(void *context) { stack[depth++] = current; current = context; return 0; }
int cuCtxPopCurrent_v2(void **out) { *out = current; current = stack[--depth]; return 0; }
int cuCtxEnablePeerAccess(void *peer, unsigned flags) { CONTEXT; note("peer", current, peer); return 0; }
int cuDeviceCanAccessPeer(int *out, int device, int peer) { TOLD; *out = reach && device != peer; return 0; }
int cuCtxSynchronize(void) { CONTEXT; return 0; }
int cuMemGetInfo_v2(size_t *free_, size_t *total) { CONTEXT; *free_ = 1000; *total = 1 << 30; return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) { CONTEXT; memmove((void *)to, from, n); return 0; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { CONTEXT; memmove(to, (void *)from, n); return 0; }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *s)
{
    CONTEXT; memmove((void *)to, (void *)from, n); return 0;
}
int cuMemcpyPeerAsync(uint64_t to, void *there, uint64_t from, void *here, size_t n, void *s)
{
    CONTEXT; if (there != current) return 400; note("copy", here, s); memmove((void *)to, (void *)from, n); return 0;
}
int cuMemsetD32Async(uint64_t to, unsigned value, size_t n, void *s)
{
    CONTEXT; for (size_t i = 0; i < n; i++) ((unsigned *)to)[i] = value; return 0;
}
int cuMemHostAlloc(void **out, size_t n, unsigned flags) { CONTEXT; *out = malloc(n); pinned_now++; return 0; }
int cuMemFreeHost(void *p) { CONTEXT; free(p); pinned_now--; return 0; }
int cuPointerGetAttributes(unsigned n, int *which, void **out, uint64_t p) { TOLD; *(unsigned *)out[0] = p == known; return 0; }

static int slot(void *stream) { return (int)((uintptr_t)stream & 63); }
int cuStreamCreate(void **out, unsigned flags) { static uintptr_t next = 0x70; CONTEXT; *out = (void *)next++; return 0; }
int cuStreamDestroy_v2(void *s) { return 0; }
int cuStreamSynchronize(void *s) { CONTEXT; synchronized++; return 0; }
int cuStreamBeginCapture_v2(void *s, int mode_) { CONTEXT; if (!s) return 900; capturing[slot(s)] = s; return 0; }
int cuStreamEndCapture(void *s, void **out)
{
    CONTEXT; capturing[slot(s)] = 0; *out = (void *)0x900; return 0;
}
int cuGraphInstantiateWithFlags(void **out, void *graph, uint64_t flags) { TOLD; *out = (void *)0x901; return 0; }
int cuGraphUpload(void *g, void *s) { return 0; }
int cuGraphLaunch(void *g, void *s) { CONTEXT; replayed++; return 0; }
int cuGraphExecDestroy(void *g) { return 0; }
int cuGraphDestroy(void *g) { return 0; }
int cuEventCreate(void **out, unsigned flags) { CONTEXT; *out = (void *)0x800; return 0; }
int cuEventRecord(void *e, void *s) { CONTEXT; note("record", current, s); return 0; }
int cuStreamWaitEvent(void *s, void *e, unsigned flags) { CONTEXT; note("wait", current, s); return 0; }
int cuEventSynchronize(void *e) { CONTEXT; return 0; }
int cuEventDestroy_v2(void *e) { return 0; }

int cuModuleLoadDataEx(void **out, const void *image, unsigned n, int *keys, void **values)
{
    CONTEXT;
    const char *text = image;
    if (!memcmp(text, "\177ELF", 4)) { if (text[4] != 1) return 200; }
    else if (strstr(text, "BROKEN")) {
        strncpy(values[0], "ptxas application ptx input, line 3; error   : Unknown symbol 'BROKEN'", (size_t)values[1]);
        return 218;
    }
    loaded++;
    *out = memcpy(malloc(strlen(text) + 1), text, strlen(text) + 1);
    return 0;
}
int cuModuleUnload(void *m) { CONTEXT; unloaded++; free(m); return 0; }
int cuModuleGetFunction(void **out, void *m, const char *name)
{
    CONTEXT;
    Function *f = calloc(1, sizeof *f);
    strncpy(f->name, name, 127);
    f->context = current;
    f->registers = *(char *)m == '\177' ? linked_registers : registers;
    *out = f;
    return 0;
}
int cuFuncGetAttribute(int *out, int which, void *f) { CONTEXT; *out = which == 4 ? ((Function *)f)->registers : 0; return 0; }
int cuFuncSetAttribute(void *f, int which, int value)
{
    CONTEXT; if (which == 8) { ((Function *)f)->dynamic = value; granted = value; } else ((Function *)f)->wide = value;
    return 0;
}
int cuLinkCreate_v2(unsigned n, int *keys, void **values, void **out) { CONTEXT; *out = (void *)0x600; return 0; }
int cuLinkAddData_v2(void *s, int kind, void *data, size_t n, const char *name, unsigned k, int *o, void **v) { TOLD; return 0; }
int cuLinkComplete(void *s, void **cubin, size_t *n) { linked++; *cubin = "\177ELF\1machine code"; *n = 18; return 0; }
int cuLinkDestroy(void *s) { return 0; }

int cuLaunchKernelEx(Config *c, Function *f, void **p, void **extra)
{
    if (f->context != current) refused++;
    CONTEXT;
    if (f->context != current) return 400;
    if (f->dynamic < (int)c->shared && c->shared > 48 * 1024) return 1;
    if (capturing[slot(c->stream)] && c->stream) { captured++; return 0; }
    Launch *l = &launches[__sync_fetch_and_add(&launched, 1) % SEEN];
    memcpy(l->grid, c->grid, 12); memcpy(l->block, c->block, 12);
    l->shared = c->shared; l->stream = (uint64_t)c->stream; l->function = (uint64_t)f; l->attributes = c->count;
    if (c->count) { l->attribute = *(int *)c->attributes; l->value = ((int *)c->attributes)[2]; }
    int at = 0;
    for (int i = 0; i < params; i++) { memcpy(l->params + at, p[i], param_sizes[i]); at += param_sizes[i]; }
    if (!strcmp(f->name, "one_and_one")) {
        float *a = *(float **)p[0], *out = *(float **)p[1];
        *out = a[0] + a[1];
    }
    return 0;
}
int cuTensorMapEncodeTiled(unsigned char *out, int type, unsigned rank, void *address, uint64_t *shape, uint64_t *pitch,
                           unsigned *box, unsigned *steps, int interleave, int swizzle, int promotion, int fill)
{
    TOLD;
    if ((uintptr_t)out & 63) return 1;
    memset(out, 0, 128);
    uint64_t words[16] = {(uint64_t)address, type, rank, shape[0], rank > 1 ? shape[1] : 0, rank > 1 ? pitch[0] : 0, box[0],
                          rank > 1 ? box[1] : 0, swizzle, fill, steps[0]};
    memcpy(out, words, sizeof words);
    return 0;
}
