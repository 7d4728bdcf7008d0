"""The events of a simulated cluster: what the scheduler, the link and the workers do, in the order of time.

The policy is Dask's, simplified.  A task that reads nothing, or what all tasks of its kind read, goes to a worker that
is not full, else it waits at the scheduler.  Another one goes to a worker that has one of its inputs: the one which is
expected to start it first.  At intervals, idle workers take waiting tasks of full ones.  The scheduler knows
no speeds.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from math import ceil

from trueno_dask.simulation.cluster import Link, Scheduler, Workers
from trueno_dask.simulation.graphs import Tasks, roots
from trueno_dask.simulation.hosts import Host

ARRIVES, ENDS, LEARNS, SERVED, HOST, BALANCE = range(6)
FEW = 8
"""Of so many holders of a result the one with the freest link sends it."""
MANY = 32
"""A result that so many workers hold decides no longer where a task runs."""
LEAST_S, MOST_RATIO = 0.005, 100
"""Dask moves no task that is shorter, nor one whose data take so many times longer."""


class Run:
    """One run of a graph.  By task: `at` its worker, and the times at which it was sent, arrived, started, and so on.

    cause: the task whose end made the scheduler send it; before: the one that had the thread until it started; -1 for
    none.  moved: whether an idle worker took it.
    """

    def __init__(self, tasks: Tasks, groups: Sequence[Workers], link: Link, scheduler: Scheduler) -> None:
        self.tasks, self.link, self.scheduler = tasks, link, scheduler
        n = len(tasks.keys)
        self.at, self.cause, self.before = [-1] * n, [-1] * n, [-1] * n
        self.sent, self.arrived, self.started, self.ended, self.served = ([-1.0] * n for _ in range(5))
        self.moved = [False] * n
        self.holders: list[dict[int, float]] = [{} for _ in range(n)]
        self.missing = [0] * n
        self.readers: list[list[int]] = [[] for _ in range(n)]
        self.group, self.speed, self.threads, self.task_s, self.full = [], [], [], [], []
        self.host: list[Host | None] = []
        for number, workers in enumerate(groups):
            host = None if workers.cores is None else Host(workers.cores)
            self.group += [number] * workers.count
            self.speed += [workers.speed] * workers.count
            self.threads += [workers.threads] * workers.count
            self.task_s += [workers.task_s] * workers.count
            self.host += [host] * workers.count
            self.full += [max(1, min(n, ceil(min(scheduler.saturation * workers.threads, n))))] * workers.count
        w = len(self.group)
        self.busy, self.processing, self.version = [0] * w, [0] * w, [0] * w
        self.occupancy, self.worked, self.out_free, self.in_free, self.out_busy, self.in_busy, self.stored = (
            [0.0] * w for _ in range(7)
        )
        self.ready: list[list[int]] = [[] for _ in range(w)]
        self.loads = [(0.0, i) for i in range(w)]
        self.beside = next((h for h in self.host if h is not None), None) if scheduler.beside else None
        self.inbox: deque[int] = deque()
        self.roots = roots(tasks, sum(self.threads))
        self.queue: list[int] = []
        self.events: list[tuple[float, int, int, int, int]] = []
        self.number = 0
        self.free_at, self.served_s, self.bytes, self.taken = 0.0, 0.0, 0.0, 0
        self.begin = 0.0

    # ---- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> float:
        """Let everything happen; the makespan."""
        held = self.tasks.held
        for turn, i in enumerate(i for i, h in enumerate(held) if h):
            self.hold(i, turn % len(self.group), 0.0)
        first = []
        left = 0
        for i, needs in enumerate(self.tasks.needs):
            if not held[i]:
                left += 1
                waits = [need for need in needs if not held[need]]
                self.missing[i] = len(waits)
                for need in waits:
                    self.readers[need].append(i)
                if not waits:
                    first.append(i)
        self.begin = now = self.free_at = self.scheduler.start_s + self.scheduler.graph_s * left
        for i in first:
            self.release(i, now, -1)
        self.drain(now, -1)
        if self.scheduler.balance_s is not None and len(self.group) > 1:
            self.push(now + self.scheduler.balance_s, BALANCE, 0, 0)
        while left and self.events:
            now, _, what, i, w = heappop(self.events)
            if what == ENDS:
                self.end(i, w, now)
            elif what == ARRIVES:
                if self.at[i] == w and self.started[i] < 0:
                    heappush(self.ready[w], i)
                    self.fill(w, now, -1)
            elif what == SERVED:
                self.serve(i, w, now)
                left -= 1
            elif what == LEARNS:
                self.inbox.append(i)
                if len(self.inbox) == 1:
                    self.attend(now)
            elif what == HOST:
                self.host_event(i, w, now)
            else:
                self.balance(now)
                if len(self.events) or self.queue:
                    self.push(now + (self.scheduler.balance_s or 0), BALANCE, 0, 0)
        return now

    def push(self, time: float, what: int, i: int, w: int) -> None:
        """Let something happen later; what is pushed first happens first."""
        self.number += 1
        heappush(self.events, (time, self.number, what, i, w))

    # ---- the scheduler ---------------------------------------------------------------------------------------------

    def release(self, i: int, now: float, cause: int) -> None:
        """A task may run: it waits in the queue, or goes to a worker that has one of its inputs."""
        self.cause[i] = cause
        if self.roots[i]:
            heappush(self.queue, i)
            return
        holders = [self.holders[need] for need in self.tasks.needs[i]]
        candidates = {w for held in holders if len(held) <= MANY for w in held}
        candidates = candidates or {w for held in holders for w in islice(held, MANY)}
        self.send(i, min(candidates, key=lambda w: (self.start_s(i, w), self.stored[w], w)), now)

    def start_s(self, i: int, w: int) -> float:
        """In how many seconds the scheduler expects a worker to start a task."""
        return self.occupancy[w] / self.threads[w] + self.transfer_s(i, w)

    def transfer_s(self, i: int, w: int) -> float:
        """What the scheduler expects the inputs to take that a worker lacks."""
        missing = [self.tasks.nbytes[need] for need in self.tasks.needs[i] if w not in self.holders[need]]
        return sum(missing) / self.link.bandwidth + self.link.latency if missing else 0.0

    def send(self, i: int, w: int, now: float) -> None:
        """Send a task to a worker, which requests the inputs that it lacks."""
        self.at[i], self.sent[i] = w, now
        self.load(w, 1, self.tasks.seconds[i])
        self.arrived[i] = self.fetch(i, w, now + self.link.latency)
        self.push(self.arrived[i], ARRIVES, i, w)

    def load(self, w: int, count: int, seconds: float) -> None:
        """Count a task that a worker has, or no longer."""
        self.processing[w] += count
        self.occupancy[w] = self.occupancy[w] + count * seconds if self.processing[w] else 0.0
        heappush(self.loads, (self.processing[w] / self.threads[w], w))

    def drain(self, now: float, cause: int) -> None:
        """Send what waits at the scheduler to workers that are not full."""
        while self.queue:
            share, w = self.loads[0]
            if share != self.processing[w] / self.threads[w]:
                heappop(self.loads)  # it was pushed again with its new load
            elif self.processing[w] >= self.full[w]:
                return
            else:
                i = heappop(self.queue)
                self.cause[i] = cause
                self.send(i, w, now)

    def serve(self, i: int, w: int, now: float) -> None:
        """The scheduler has learned that a task has ended."""
        self.load(w, -1, self.tasks.seconds[i])
        for reader in self.readers[i]:
            self.missing[reader] -= 1
            if not self.missing[reader]:
                self.release(reader, now, i)
        self.drain(now, i)

    def attend(self, now: float) -> None:
        """A scheduler on the workers' host begins with the next message, on a core that it shares with them."""
        assert self.beside is not None
        self.free_at = now
        self.beside.start(self.scheduler.task_s, -1, now)
        self.wake(self.beside, self.host.index(self.beside), now)

    def learned(self, now: float) -> None:
        """It has served a message."""
        i = self.inbox.popleft()
        self.served[i] = now
        self.served_s += now - self.free_at
        self.push(now, SERVED, i, self.at[i])
        if self.inbox:
            self.attend(now)

    def balance(self, now: float) -> None:
        """Let idle workers take waiting tasks of full ones, where those would start later."""
        workers = range(len(self.group))
        idle = [(self.occupancy[w] / self.threads[w], w) for w in workers if self.processing[w] < self.threads[w]]
        heapify(idle)
        full = [w for w in workers if self.processing[w] > self.threads[w]] if idle else []
        for victim in sorted(full, key=lambda w: (-self.occupancy[w] / self.threads[w], w)):
            for i in sorted(self.ready[victim], reverse=True):
                if not idle:
                    return
                seconds = self.tasks.seconds[i]
                if self.at[i] != victim or self.started[i] >= 0 or seconds < LEAST_S:
                    continue
                own, thief = idle[0]
                transfer = self.transfer_s(i, thief)
                if transfer > MOST_RATIO * seconds:
                    continue
                if own + transfer + seconds > self.occupancy[victim] / self.threads[victim] - seconds / 2:
                    break
                self.load(victim, -1, seconds)
                self.moved[i], self.taken = True, self.taken + 1
                self.send(i, thief, now)
                if self.processing[thief] < self.threads[thief]:
                    heapreplace(idle, (self.occupancy[thief] / self.threads[thief], thief))
                else:
                    heappop(idle)

    # ---- links and workers -----------------------------------------------------------------------------------------

    def hold(self, i: int, w: int, now: float) -> None:
        """A worker has a result from a time on."""
        self.holders[i][w] = now
        self.stored[w] += self.tasks.nbytes[i]

    def fetch(self, i: int, w: int, now: float) -> float:
        """When a worker has all inputs of a task: it gets them in one transfer from each worker that has some."""
        complete = now
        wanted: dict[int, list[int]] = {}
        for need in self.tasks.needs[i]:
            held = self.holders[need]
            if w in held:
                complete = max(complete, held[w])
                continue
            sources = [s for s in islice(held, FEW) if held[s] <= now]
            wanted.setdefault(min(sources, key=lambda s: (self.out_free[s], s)), []).append(need)
        for source, needs in wanted.items():
            size = sum(self.tasks.nbytes[need] for need in needs)
            start = max(now, self.out_free[source], self.in_free[w])
            end = start + self.link.latency + size / self.link.bandwidth
            self.out_free[source] = self.in_free[w] = end
            self.out_busy[source] += end - start
            self.in_busy[w] += end - start
            self.bytes += size
            for need in needs:
                self.hold(need, w, end)
            complete = max(complete, end)
        return complete

    def fill(self, w: int, now: float, freed: int) -> None:
        """Start tasks on the free threads of a worker."""
        ready, host = self.ready[w], self.host[w]
        while ready and self.busy[w] < self.threads[w]:
            i = heappop(ready)
            if self.at[i] != w or self.started[i] >= 0:
                continue  # another worker has taken it
            self.started[i] = now
            self.before[i] = freed if now > self.arrived[i] else -1
            self.busy[w] += 1
            seconds = (self.tasks.seconds[i] + self.task_s[w]) / self.speed[w]
            if host is None:
                self.push(now + seconds, ENDS, i, w)
            else:
                host.start(seconds, i, now)
                self.wake(host, w, now)

    def wake(self, host: Host, w: int, now: float) -> None:
        """Let the host of a worker end its next task."""
        time = host.next(now)
        if time is not None:
            self.push(time, HOST, host.version, w)

    def host_event(self, version: int, w: int, now: float) -> None:
        """The first task of a host has ended, unless others have started since, so that it ends later."""
        host = self.host[w]
        assert host is not None
        if version == host.version:
            i = host.done(now)
            if i >= 0:
                self.end(i, self.at[i], now)
            else:
                self.learned(now)
            self.wake(host, w, now)

    def end(self, i: int, w: int, now: float) -> None:
        """A task has ended: its thread is free, and the scheduler has one more message."""
        self.ended[i] = now
        self.worked[w] += now - self.started[i]
        self.busy[w] -= 1
        self.hold(i, w, now)
        self.fill(w, now, i)
        if self.beside is not None:
            self.push(now + self.link.latency, LEARNS, i, w)
            return
        served = max(self.free_at, now + self.link.latency) + self.scheduler.task_s
        self.free_at = self.served[i] = served
        self.served_s += self.scheduler.task_s
        self.push(served, SERVED, i, w)
