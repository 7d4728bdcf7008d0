"""A simulated cluster: times that follow on paper, what always holds, and the graphs of real arrays."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
import trueno
from hypothesis import given
from hypothesis import strategies as st
from trueno.errors import ParameterError
from trueno_dask import Cost, Link, Scheduler, Work, Workers, measure, simulate, tensor_parallel

CHAIN = {i: Work(1.0, 8, (i - 1,) if i else ()) for i in range(5)}
BARE = Scheduler(balance_s=None)


def independent(n, seconds=1.0):
    return {i: Work(seconds, kind="f") for i in range(n)}


# ---- on paper ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_a_chain_takes_the_sum(count):
    result = simulate(CHAIN, Workers(count))
    assert result.makespan == result.critical_path == result.seconds == 5 and result.bound == "compute"
    assert result.busy == (pytest.approx(1 / count),) and result.moved == 0  # each task runs where its input is


def test_independent_tasks_share_the_workers():
    assert simulate(independent(2), Workers(2)).makespan == 1
    assert simulate(independent(7), Workers(3)).makespan == 3
    assert simulate(independent(8), Workers(2, threads=2)).makespan == 2


def test_speed_and_the_worker_s_own_time():
    assert simulate(CHAIN, Workers(1, speed=2)).makespan == 2.5
    assert simulate(CHAIN, Workers(1, speed=0.5, task_s=0.5)).makespan == 15


def test_the_scheduler_limits_short_tasks():
    scheduler = Scheduler(task_s=0.1, graph_s=0.02, start_s=1.0)
    result = simulate(independent(100, 0.001), Workers(50), scheduler=scheduler)
    assert result.makespan == pytest.approx(1 + 100 * 0.02 + 0.001 + 100 * 0.1) and result.bound == "scheduler"
    assert result.scheduler == pytest.approx(13 / 13.001)
    assert simulate(CHAIN, Workers(1), scheduler=scheduler).makespan == pytest.approx(1 + 5 * (1 + 0.1 + 0.02))


def test_the_link_limits_large_results():
    graph = {"a": Work(0, 100.0, held=True), "b": Work(0, 100.0, held=True), "c": Work(1.0, 4, ("a", "b"))}
    result = simulate(graph, Workers(2), link=Link(10.0, 0.5))
    # two messages of 0.5 s to the worker and back, one transfer of 0.5 + 100 / 10 s, and the task
    assert result.makespan == pytest.approx(0.5 + 10.5 + 1 + 0.5) and result.bound == "link"
    assert result.moved == 100 and result.tasks == 1 and result.link == pytest.approx(10.5 / 12.5)
    assert simulate(graph, Workers(1), link=Link(10.0, 0.5)).moved == 0


def test_transfers_of_one_worker_follow_one_another():
    graph = {"a": Work(0, 100.0, held=True), "b": Work(0, 1.0, held=True), "c": Work(0, 1.0, held=True)}
    reads = {k: Work(1.0, 0, ("a", k[0])) for k in ("b2", "c2")}
    result = simulate({**graph, **{k: Work(0, 500.0, (k[0],), kind=k) for k in ("b1", "c1")}, **reads}, Workers(3),
                      link=Link(10.0))  # fmt: skip
    assert result.moved >= 2 and result.makespan >= 1
    wide = {"a": Work(0, 100.0, held=True), **{i: Work(5.0, 0, ("a",), "f") for i in range(10)}}
    both = simulate(wide, Workers(4), link=Link(10.0), scheduler=BARE)
    assert both.makespan == pytest.approx(30 + 10)  # the third copy arrives after 30 s, and two tasks follow it


def test_a_slow_worker_limits():
    result = simulate(independent(20), (Workers(9), Workers(1, speed=0.1)), scheduler=BARE)
    assert result.bound == "slowest worker" and result.makespan == pytest.approx(20)  # two tasks of 10 s
    assert result.path["slowest worker"] == pytest.approx(18) and result.path["compute"] == pytest.approx(2)
    assert result.busy == (pytest.approx(18 / (9 * 20)), 1.0)


def test_idle_workers_take_tasks_of_full_ones():
    graph = {"x": Work(0, 8, held=True), **{i: Work(1.0, 0, ("x",)) for i in range(10)}}
    assert simulate(graph, Workers(2), scheduler=BARE).makespan == 10
    taken = simulate(graph, Workers(2), scheduler=Scheduler(balance_s=1.0))
    assert taken.makespan < 8 and taken.taken >= 3 and sum(taken.path.values()) == pytest.approx(taken.makespan)
    short = {k: Work(w.seconds / 1000, w.nbytes, w.needs, w.kind, w.held) for k, w in graph.items()}
    assert simulate(short, Workers(2), scheduler=Scheduler(balance_s=0.001)).taken == 0  # not worth a message


def test_workers_share_the_cores_of_a_host():
    assert simulate(independent(8), Workers(8, cores=2)).makespan == pytest.approx(4)
    assert simulate(independent(2), Workers(8, cores=2)).makespan == pytest.approx(1)
    three = {**independent(2, 1.0), 2: Work(2.0, kind="f")}  # 2 / 3 of the speed until 1.5 s, then all of it
    assert simulate(three, Workers(3, cores=2)).makespan == pytest.approx(1.5 + 1.0)
    assert simulate(independent(1), Workers(cores=0.5)).makespan == pytest.approx(2)  # others use half of the only core
    assert Workers(8, 0.5, cores=2).power == 1 and Workers(2, 0.5, threads=2).power == 2


def test_the_scheduler_may_share_the_host():
    apart, beside = (Scheduler(task_s=0.5, beside=beside) for beside in (False, True))
    assert simulate(independent(3), Workers(cores=1), scheduler=apart).makespan == pytest.approx(3 + 0.5)
    shared = simulate(independent(3), Workers(cores=1), scheduler=beside)
    assert shared.makespan == pytest.approx(3 + 3 * 0.5)  # one core does everything
    assert sum(shared.path.values()) == pytest.approx(shared.makespan)
    assert simulate(independent(3), Workers(cores=2), scheduler=beside).makespan == pytest.approx(3 + 0.5)
    assert simulate(CHAIN, Workers(2, cores=1), scheduler=beside).makespan == pytest.approx(5 * 1.5)


def test_an_empty_graph():
    result = simulate({}, Workers(2))
    assert (result.makespan, result.tasks, result.scheduler, result.link) == (0, 0, 0, 0) and "0 tasks" in str(result)


# ---- what always holds ---------------------------------------------------------------------------------------------

SECONDS = st.floats(0, 3)


@st.composite
def graphs(draw):
    """A graph in which each task needs some of the tasks before it."""
    graph = {}
    for i in range(draw(st.integers(1, 24))):
        held = draw(st.booleans()) and i < 4
        needs = () if held or not i else tuple(draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)))
        graph[i] = Work(
            0 if held else draw(SECONDS), draw(st.integers(0, 50)), needs, draw(st.sampled_from(["", "f"])), held
        )
    return graph


GROUPS = st.lists(
    st.builds(
        Workers, st.integers(1, 4), st.floats(0.1, 4), st.integers(1, 2), st.floats(0, 0.1),
        st.none() | st.floats(0.5, 3),
    ), min_size=1, max_size=3,
)  # fmt: skip
LINKS = st.builds(Link, st.floats(1, 1e3), st.floats(0, 0.1))
SCHEDULERS = st.builds(
    Scheduler, st.floats(0, 0.2), st.floats(0, 0.1), st.floats(0, 1), st.floats(0.5, 3), st.none() | st.floats(0.5, 2)
)


@given(graphs(), GROUPS, LINKS, SCHEDULERS, st.booleans())
def test_no_bound_is_passed(graph, groups, link, scheduler, beside):
    scheduler = replace(scheduler, beside=beside and any(g.cores for g in groups))
    result = simulate(graph, groups, link=link, scheduler=scheduler)
    count = sum(not w.held for w in graph.values())
    seconds = sum(w.seconds for w in graph.values())
    least = 1 - 1e-9
    assert result.tasks == count
    if count:
        assert result.makespan >= result.critical_path * least
        assert result.makespan >= seconds / sum(g.power for g in groups) * least
        assert result.makespan >= (scheduler.start_s + count * (scheduler.task_s + scheduler.graph_s)) * least
    assert sum(result.path.values()) == pytest.approx(result.makespan) and min(result.path.values()) >= -1e-9
    assert all(0 <= share <= 1 + 1e-9 for share in (*result.busy, result.scheduler))
    assert result == simulate(graph, groups, link=link, scheduler=scheduler)
    assert max(map(len, str(result).splitlines())) <= 80


@given(graphs(), st.integers(1, 5), st.floats(0.5, 3))
def test_more_workers_are_never_slower_than_one(graph, count, saturation):
    scheduler = Scheduler(saturation=saturation)
    one, several = (simulate(graph, Workers(n), scheduler=scheduler) for n in (1, count))
    assert several.makespan <= one.makespan * (1 + 1e-9)
    assert one.makespan == pytest.approx(one.seconds)


# ---- real graphs ---------------------------------------------------------------------------------------------------


def lazy(columns=40, dtype=np.float32):
    x = da.from_array(np.ones((60, 40), dtype), chunks=(10, columns))
    return trueno.sum(trueno.softmax(trueno.gelu(x)), axis=None)


def test_the_tasks_are_those_that_dask_runs():
    x = da.from_array(np.ones((60, 40), np.float32), chunks=(10, 40)).persist(scheduler="synchronous")
    costs = measure(trueno.sum(trueno.softmax(trueno.gelu(x)), axis=None))
    result = simulate(lazy(), Workers(3), costs=dict.fromkeys(costs, Cost(1.0)))
    assert result.tasks == 7 and result.makespan == 3.0 and all(c.seconds > 0 for c in costs.values())


def test_cut_rows_need_merges():
    y = lazy(10)
    costs = measure(y, repeat=1)
    assert {"gelu", "softmax-stage-1", "softmax-rows-1", "sum-stage-1", "sum-merge-1", "sum"} <= costs.keys()
    assert costs["softmax-stage-1"].nbytes >= 2 * 10 * 4  # the parts of ten rows: a maximum and a sum
    result = simulate(y, Workers(4), costs=dict.fromkeys(costs, Cost(1.0)), link=Link(1e6))
    assert result.tasks == 3 * 24 + 6 + 3 + 1 and result.moved > 0
    whole = simulate(lazy(40), Workers(4), costs={**costs, **measure(lazy(40))}, link=Link(1e6))
    assert whole.moved < result.moved


def test_bytes_are_those_of_the_largest_chunk():
    costs = dict.fromkeys(measure(lazy()), Cost(rate=1.0))  # the last task reads parts, whose bytes chunks do not show
    assert simulate(lazy(), Workers(1), costs=costs).makespan == pytest.approx(60 * 40 * 4 + 4)
    uneven = da.from_array(np.ones(100, np.float32), chunks=((70, 30),))
    y = trueno.exp(uneven)
    exp = simulate(y, Workers(2), costs=dict.fromkeys(measure(y), Cost(rate=1.0)))
    assert exp.seconds == pytest.approx(400) and exp.makespan == pytest.approx(280)


def test_an_array_is_measured_where_costs_are_not_given():
    assert simulate(lazy(), Workers(2)).seconds > 0
    assert trueno.settings.get("TRUENO_THREADS") is None or trueno.settings.origin("TRUENO_THREADS").origin != "code"


def test_large_chunks_have_a_rate_and_small_ones_a_time():
    (large,) = measure(trueno.exp(da.ones((64, 1024), dtype=np.float32, chunks=(32, 1024)))).values()
    assert large.seconds == 0 and 0 < large.rate < np.inf
    (small,) = measure(trueno.exp(da.ones((64, 8), dtype=np.float32, chunks=(32, 8)))).values()
    assert small.seconds > 0 and small.rate == np.inf


def test_matrix_products_and_unknown_chunks():
    a = da.ones((8, 12), dtype=np.float32, chunks=(4, 4))
    assert simulate(trueno.matmul(a, a.T), Workers(2)).tasks > 4
    kept = a[a[:, 0] > 0]
    assert simulate(trueno.softmax(kept), Workers(2)).tasks > 1


def test_a_thousand_workers():
    graph = {("x", i): Work(0.05, 1e6, kind="x") for i in range(3000)}
    graph |= {("y", i): Work(0.01, 1e3, tuple(("x", 3 * i + k) for k in range(3)), "y") for i in range(1000)}
    result = simulate(graph, Workers(1000), link=Link(1e9, 1e-4), scheduler=Scheduler(task_s=1e-3))
    assert result.bound == "scheduler" and result.makespan >= 4


# ---- what is shown, and errors -------------------------------------------------------------------------------------


def test_the_table_fits_a_terminal():
    groups = (Workers(999), Workers(1, speed=0.1))
    text = str(simulate(independent(3000), groups, link=Link(1e9, 1e-4), scheduler=Scheduler(task_s=1e-3)))
    assert max(map(len, text.splitlines())) <= 80 and "limited by: " in text and "999 of speed 1" in text
    assert simulate(CHAIN, Workers()).json()["bound"] == "compute"
    assert repr(simulate(CHAIN, Workers())).startswith("5 tasks on 1 worker: 5 s")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Workers(0), r"simulate: Workers.count is 0; give a whole number of at least 1"),
        (lambda: Workers(1.5), r"Workers.count is 1.5"),
        (lambda: Workers(threads=True), r"Workers.threads is True"),
        (lambda: Workers(speed=0), r"Workers.speed is 0; give a finite number greater than 0"),
        (lambda: Workers(speed=float("inf")), r"Workers.speed is inf"),
        (lambda: Workers(cores=0), r"Workers.cores is 0"),
        (lambda: Link(-1), r"Link.bandwidth is -1; give a number greater than 0"),
        (lambda: Link(1, float("nan")), r"Link.latency is nan"),
        (lambda: Scheduler(task_s="1"), r"Scheduler.task_s is '1'"),
        (lambda: Scheduler(balance_s=0), r"Scheduler.balance_s is 0"),
        (lambda: simulate(CHAIN, Workers(), scheduler=Scheduler(beside=True)), r"beside is True, but no Workers have"),
        (lambda: Cost(-1), r"Cost.seconds is -1"),
        (lambda: Work(-1), r"Work.seconds is -1"),
        (lambda: Work(needs=("a",), held=True), r"Work.needs is \('a',\), but data that are held"),
        (lambda: Work(1, held=True), r"Work.seconds is 1, but data that are held need no task; omit it"),
        (lambda: simulate(CHAIN, 4), r"simulate: workers is 4; give trueno_dask.Workers"),
        (lambda: simulate(CHAIN, []), r"simulate: workers is \[\]"),
        (lambda: simulate(CHAIN, Workers(), link=1e9), r"simulate: link is 1000000000.0; give trueno_dask.Link"),
        (lambda: simulate(CHAIN, Workers(), scheduler=1), r"simulate: scheduler is 1; give trueno_dask.Scheduler"),
        (lambda: simulate(CHAIN, Workers(), costs={}), r"costs are for a Dask array"),
        (lambda: simulate(np.ones(3), Workers()), r"work is ndarray; give a Dask array"),
        (lambda: simulate({"a": 1}, Workers()), r"graph\['a'\] is int; give trueno_dask.Work"),
        (lambda: simulate({"a": Work(needs=("b",))}, Workers()), r"graph\['a'\] needs 'b', which the graph lacks"),
        (lambda: simulate({"a": Work(needs=("b",)), "b": Work(needs=("a",))}, Workers()), r"through a cycle"),
        (lambda: simulate(lazy(), Workers(), costs={"gelu": Cost(1)}), r"costs has no '.*', but gelu; add a .*Cost"),
        (lambda: measure(np.ones(3)), r"measure: x is ndarray; give a Dask array"),
        (lambda: measure(lazy(), repeat=0), r"measure: repeat is 0"),
        (lambda: measure(lazy(), threads=0), r"measure: threads is 0"),
        (lambda: tensor_parallel(0, 1, bandwidth=1, reduced=1, link=Link()), r"tensor_parallel: nbytes is 0"),
        (lambda: tensor_parallel(1, 0, bandwidth=1, reduced=1, link=Link()), r"tensor_parallel: layers is 0"),
        (lambda: tensor_parallel(1, 1, bandwidth=1, reduced=1, link=1), r"tensor_parallel: link is 1"),
        (lambda: tensor_parallel(1, 1, bandwidth=1, reduced=1, link=Link(), gpus=(0,)), r"tensor_parallel: gpus is 0"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, text):
    with pytest.raises(ParameterError, match=text):
        call()


def test_a_task_that_cannot_stand_for_all():
    x = da.from_array(np.ones((4, 6), np.float32), chunks=((3, 1), 6))

    def picky(block):
        if block.shape[0] != 1:
            raise ValueError("one row only")
        return block

    with pytest.raises(ParameterError, match=r"measure: the task '.*picky' does not run .*one row only.*costs="):
        measure(x.map_blocks(picky, dtype=np.float32, meta=np.empty((0, 0), np.float32)))


# ---- tensor parallelism --------------------------------------------------------------------------------------------


def test_a_decode_step_on_several_gpus():
    result = tensor_parallel(4e9, 10, bandwidth=2e12, reduced=1e4, link=Link(1e11, 1e-5), launches=100, launch_s=1e-6)
    one, two = result.lines[:2]
    assert [line.gpus for line in result.lines] == [1, 2, 4, 8]
    assert one.seconds == pytest.approx(2e-3 + 1e-4) and one.link == 0 and one.bound == "memory"
    assert two.seconds == pytest.approx(1e-3 + 20 * (1e-5 + 1e-7) + 1e-4)
    assert two.tokens_per_s == pytest.approx(1 / two.seconds) and result.json()[1]["gpus"] == 2
    assert max(map(len, str(result).splitlines())) <= 80
    slow = tensor_parallel(4e9, 10, bandwidth=2e12, reduced=1e4, link=Link(1e11, 1e-3), gpus=[8])
    assert slow.lines[0].bound == "link"
