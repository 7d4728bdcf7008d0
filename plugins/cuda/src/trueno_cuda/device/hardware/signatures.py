"""The driver's functions that are used, with their parameters.

Names with a version are those of CUDA 12, which every driver since 525 has.
"""

from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Final

LETTERS: Final = {"i": c_int, "u": c_uint, "z": c_size_t, "q": c_uint64, "p": c_void_p, "s": c_char_p}
"""i int, u unsigned, z size, q device address or 64-bit number, p handle or host address, s text; - for none."""

_TABLE: Final = """
cuInit u
cuDriverGetVersion p
cuGetErrorName ip
cuGetErrorString ip
cuDeviceGetCount p
cuDeviceGet pi
cuDeviceGetName pii
cuDeviceGetAttribute pii
cuDeviceGetPCIBusId pii
cuDevicePrimaryCtxRetain pi
cuDevicePrimaryCtxRelease_v2 i
cuCtxSetCurrent p
cuCtxGetCurrent p
cuCtxPushCurrent_v2 p
cuCtxPopCurrent_v2 p
cuCtxSynchronize -
cuCtxEnablePeerAccess pu
cuDeviceCanAccessPeer pii
cuMemGetInfo_v2 pp
cuMemcpyHtoDAsync_v2 qpzp
cuMemcpyDtoHAsync_v2 pqzp
cuMemcpyDtoDAsync_v2 qqzp
cuMemcpyPeerAsync qpqpzp
cuMemsetD32Async quzp
cuMemHostAlloc pzu
cuMemFreeHost p
cuPointerGetAttributes uppq
cuStreamCreate pu
cuStreamDestroy_v2 p
cuStreamSynchronize p
cuStreamWaitEvent ppu
cuStreamBeginCapture_v2 pi
cuStreamEndCapture pp
cuGraphInstantiateWithFlags ppq
cuGraphLaunch pp
cuGraphExecDestroy p
cuGraphDestroy p
cuEventCreate pu
cuEventRecord pp
cuEventSynchronize p
cuEventDestroy_v2 p
cuModuleLoadDataEx ppupp
cuModuleUnload p
cuModuleGetFunction pps
cuFuncGetAttribute pip
cuFuncSetAttribute pii
cuLinkCreate_v2 uppp
cuLinkAddData_v2 pipzsupp
cuLinkComplete ppp
cuLinkDestroy p
cuLaunchKernelEx pppp
cuTensorMapEncodeTiled piuqppppiiii
"""

SIGNATURES: Final[dict[str, str]] = dict(row.split() for row in _TABLE.strip().splitlines())
"""Letters of the parameters, by the function's name; each gives a result code."""
