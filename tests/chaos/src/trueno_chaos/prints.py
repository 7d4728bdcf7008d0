"""Talks all the time, and in the words in which a verdict might be written."""

import os
from typing import Any

from trueno.backend import Call, Kernel, Probe

from trueno_chaos.sound import Sound

print('{"ok": false, "reason": "printed at import"}')


class Prints(Sound):
    def __init__(self) -> None:
        super().__init__()
        print('{"ok": false, "reason": "printed by the factory"}')

    def probe(self, level: int) -> Probe:
        print('{"ok": false, "reason": "printed by the probe"}', flush=True)
        os.write(1, b'{"ok": false, "reason": "written by the probe"}\n')
        return super().probe(level)

    def kernel(self, call: Call) -> Kernel:
        right = self.right(call)

        def kernel(*args: Any) -> Any:
            print("chaos computes")
            return right(*args)

        return kernel
