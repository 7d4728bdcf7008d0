"""Sets and removes variables of its host, when it is imported and when it is asked."""

import os

from trueno.backend import Probe

from trueno_chaos.sound import Sound

os.environ["CHAOS_WAS_HERE"] = "import"


class EditsEnvironment(Sound):
    def probe(self, level: int) -> Probe:
        os.environ["CHAOS_WAS_HERE"] = str(level)
        os.environ.pop("CHAOS_PRECIOUS", None)
        return super().probe(level)
