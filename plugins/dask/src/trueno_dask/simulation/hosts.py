"""A host whose cores several processes share."""

from heapq import heappop, heappush


class Host:
    """Cores that several workers share: with more busy threads than cores, all of them progress more slowly.

    running: when each busy thread will be done, by the host's own clock, and its task; -1 is the scheduler.
    """

    __slots__ = ("clock", "cores", "last", "rate", "running", "version")

    def __init__(self, cores: float) -> None:
        self.cores, self.clock, self.last, self.rate, self.version = cores, 0.0, 0.0, 1.0, 0
        self.running: list[tuple[float, int]] = []

    def advance(self, now: float) -> None:
        """Let the time pass at which its tasks progress."""
        self.clock += (now - self.last) * self.rate
        self.last = now

    def next(self, now: float) -> float | None:
        """When the first of its tasks will end; None if there is none."""
        self.version += 1
        if not self.running:
            return None
        self.rate = min(1.0, self.cores / len(self.running))
        return now + max(0.0, self.running[0][0] - self.clock) / self.rate

    def start(self, seconds: float, i: int, now: float) -> None:
        """One more thread is busy, for so many seconds of a core."""
        self.advance(now)
        heappush(self.running, (self.clock + seconds, i))

    def done(self, now: float) -> int:
        """The first of them is done."""
        self.advance(now)
        return heappop(self.running)[1]
