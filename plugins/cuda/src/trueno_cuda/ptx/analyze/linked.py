"""`python linked.py LIBRARY ARCH < text`: what nvJitLink says of a PTX text when it compiles it.

A program of its own, which imports nothing of ours: in one process with the analyzer a fault of the library would end
both.  The exit status is 1 where the text is refused; what is printed is the log.
"""

import ctypes
import sys

PTX = 2
"""The kind of input."""


def logged(library: ctypes.CDLL, handle: ctypes.c_void_p, kind: str) -> str:
    """The log of a kind: `Info` or `Error`."""
    size = ctypes.c_size_t()
    getattr(library, f"nvJitLinkGet{kind}LogSize")(handle, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    getattr(library, f"nvJitLinkGet{kind}Log")(handle, text)
    return text.value.decode("utf-8", "replace")


def main(path: str, arch: str) -> int:
    text = sys.stdin.buffer.read() + b"\0"
    library = ctypes.CDLL(path)
    options = (ctypes.c_char_p * 2)(f"-arch={arch}".encode(), b"-verbose")
    handle = ctypes.c_void_p()
    failed = library.nvJitLinkCreate(ctypes.byref(handle), len(options), options)
    if failed:
        print(f"error   : {arch} is not an architecture that it knows")
        return 1
    failed = library.nvJitLinkAddData(handle, PTX, text, ctypes.c_size_t(len(text)), b"text")
    failed = failed or library.nvJitLinkComplete(handle)
    print(logged(library, handle, "Error" if failed else "Info"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
