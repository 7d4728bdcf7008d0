"""The vendor's library waits for a driver that never answers."""

import time

time.sleep(600)
