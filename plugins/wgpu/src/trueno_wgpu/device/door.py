"""The door to WebGPU: wgpu's library, or the browser's own where Python runs in a page (Pyodide).

Behind it are the few methods of wgpu that this layer uses, and these functions.
"""

import sys
from typing import TYPE_CHECKING

_platform: str = sys.platform  # a type checker would leave out what is for another platform
IN_BROWSER = _platform == "emscripten"
"""Whether this is a page: one thread, which may often not wait."""

if TYPE_CHECKING or not IN_BROWSER:
    from trueno_wgpu.device.runtime import adapter, direct, immortal, known, may_wait, open_device, prepare
else:
    from trueno_wgpu.device.browser.runtime import adapter, direct, immortal, known, may_wait, open_device, prepare

__all__ = ["IN_BROWSER", "adapter", "direct", "immortal", "known", "may_wait", "open_device", "prepare"]
