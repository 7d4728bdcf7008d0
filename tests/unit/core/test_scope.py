"""Scopes: `use`, `prefer`, guards and traces hold inside, here and nowhere else, however they are entered and left."""

import asyncio
import contextvars
import functools
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from threading import Barrier

import pytest
import trueno
from trueno.dispatch import state
from trueno.errors import ParameterError, TruenoError
from trueno.events.stream import active
from trueno.scope import Scope, opened

GUARD = trueno.JidokaGuard().on(trueno.Condition.NAN, trueno.Action.STOP)


def now():
    return state.current.get()


def requested():
    """The request for backends that calls follow."""
    return now().request


KINDS = {
    "use": (lambda: trueno.use("reference"), lambda: requested().names == ("reference",)),
    "prefer": (lambda: trueno.prefer("reference"), lambda: requested().preferred == ("reference",)),
    "JidokaGuard": (lambda: GUARD, lambda: now().rules == GUARD.rules),
    "trace": (trueno.trace, lambda: now().traced and active("run")),
}
each_kind = pytest.mark.parametrize(("make", "holds"), KINDS.values(), ids=KINDS)


@pytest.fixture
def kind(make):
    """What messages call it."""
    return next(name for name, (other, _) in KINDS.items() if other is make)


@pytest.fixture(autouse=True)
def nothing_stays():
    before = now()
    assert opened() == ()
    yield
    assert opened() == ()
    assert now() is before


@each_kind
def test_it_holds_inside_and_is_given(make, holds):
    scope = make()
    assert isinstance(scope, Scope) and not holds()
    with scope as entered:
        assert entered is scope and holds() and opened() == (scope,)
    assert not holds()


@each_kind
def test_it_is_left_when_something_raises(make, holds):
    for error in (ZeroDivisionError, KeyboardInterrupt, GeneratorExit):
        with pytest.raises(error), make():
            raise error
        assert not holds()


@each_kind
def test_it_nests(make, holds):
    with make():
        before = now()
        with make():
            assert holds()
        assert holds() and now() is before
        for other, other_holds in KINDS.values():
            with other():
                assert other_holds()
                with make():
                    assert holds()
            assert holds() and now() is before


def test_the_innermost_counts():
    with trueno.use("reference"), trueno.prefer("scalar"):
        assert requested().preferred == ("scalar",) and not requested().names
        with trueno.use():
            assert requested().automatic
    with GUARD, trueno.JidokaGuard():
        assert now().rules == ()
    scopes = [make() for make, _ in KINDS.values()]
    with scopes[0], scopes[2], scopes[3]:
        assert opened() == (scopes[0], scopes[2], scopes[3])
        assert (requested().names, now().rules, now().traced) == (("reference",), GUARD.rules, True)


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_they_are_left_in_any_order(order):
    names = ["use", "JidokaGuard", "trace"]
    scopes = [KINDS[name][0]() for name in names]
    for scope in scopes:
        scope.__enter__()
    left = set()
    for i in order:
        scopes[i].__exit__(None, None, None)
        left.add(i)
        assert [KINDS[name][1]() for name in names] == [j not in left for j in range(3)]


@each_kind
def test_two_of_a_kind_are_left_in_any_order(make, holds):
    first, second = make(), make()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert holds() and opened() == (second,)
    second.__exit__(None, None, None)
    assert not holds()


@each_kind
def test_it_decorates_functions(make, holds):
    @make()
    def work(x, /, factor=1, *, more=0):
        """Its words."""
        assert holds()
        return work(x - 1, factor, more=more) if x > 2 else x * factor + more

    assert work.__name__ == "work" and work.__doc__ == "Its words."
    assert work(4, 3, more=1) == 7 and work(2) == 2
    assert not holds()
    with pytest.raises(TypeError, match="positional"):
        work()
    assert make()(int)("5") == 5 and make()(functools.partial(max, 3))(2) == 3


@each_kind
def test_it_decorates_async_functions(make, holds):
    @make()
    async def work(x):
        """Its words."""
        assert holds()
        await asyncio.sleep(0)
        assert holds()
        return x

    class Called:
        async def __call__(self, x):
            await asyncio.sleep(0)
            assert holds()
            return x

    async def main():
        other = asyncio.ensure_future(work(1))
        await asyncio.sleep(0)
        assert not holds()  # while that one waits inside
        assert await other == 1
        assert await asyncio.gather(*map(work, range(5))) == [*range(5)]
        assert await make()(functools.partial(work, 3))() == 3
        assert await make()(Called())(4) == 4
        assert not holds()

    assert asyncio.iscoroutinefunction(work) and work.__doc__ == "Its words."
    asyncio.run(main())


def pieces():
    yield 1


async def later_pieces():
    yield 1


class Pieces:
    def __call__(self):
        yield 1


@each_kind
@pytest.mark.parametrize("function", [pieces, later_pieces, functools.partial(pieces), Pieces()])
def test_generators_are_refused(make, holds, kind, function):
    with pytest.raises(
        ParameterError, match=rf"^{kind}.*: .*[pP]ieces.* is a generator, whose body runs where.*`with`"
    ):
        make()(function)


@each_kind
def test_what_is_no_function_is_refused(make, holds, kind):
    with pytest.raises(ParameterError, match=rf"^{kind}.*: 5 is not a function.*`with`"):
        make()(5)


@each_kind
def test_it_is_left_where_it_was_entered(make, holds, kind):
    scope = make()
    sentence = rf"^{kind}.* must be left where it was entered, in the same thread, task and context"
    with scope, ThreadPoolExecutor(1) as pool:
        inside = now()
        with pytest.raises(TruenoError, match=sentence):
            pool.submit(scope.__exit__, None, None, None).result()
        with pytest.raises(TruenoError, match=sentence):
            contextvars.Context().run(scope.__exit__, None, None, None)
        assert opened() == (scope,) and now() is inside
    with pytest.raises(TruenoError, match=sentence):
        scope.__exit__(None, None, None)
    assert not holds()


@each_kind
def test_a_generator_that_another_context_ends_is_an_error_there(make, holds):
    def paused():
        with make():
            yield

    here, there = contextvars.copy_context(), contextvars.copy_context()
    generator = paused()
    here.run(next, generator)
    assert here.run(holds)
    with pytest.raises(TruenoError, match="a generator that pauses inside"):
        there.run(next, generator, None)
    assert not there.run(holds) and not active("fallback")


@each_kind
def test_it_is_local_to_a_thread_and_goes_into_copies_of_its_context(make, holds):
    with make(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: (opened(), holds())).result() == ((), False)
        assert pool.submit(contextvars.copy_context().run, holds).result()


@each_kind
def test_threads_share_it(make, holds):
    scope, together = make(), Barrier(8)
    inside = scope(lambda: (together.wait(60), holds())[1])

    def work(_):
        outcomes = []
        for _ in range(20):
            if not isinstance(scope, trueno.events.tracing.Trace):  # each of which is used once
                with scope:
                    outcomes.append(holds())
            outcomes.append(inside())
            outcomes.append(not holds())
        return all(outcomes)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@each_kind
def test_a_scope_that_cannot_be_entered_leaves_nothing_behind(make, holds, monkeypatch):
    scope = make()

    def interrupted(self, scopes):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(scope), "_follow", interrupted)
    with pytest.raises(KeyboardInterrupt), scope:
        pytest.fail("it was not entered")
    assert opened() == () and not holds() and not active("fallback")


@each_kind
def test_tasks_have_scopes_of_their_own(make, holds):
    async def work(wanted):
        for _ in range(5):
            if wanted:
                with make():
                    await asyncio.sleep(0)
                    assert holds()
            await asyncio.sleep(0)
            assert not holds()

    async def main():
        await asyncio.gather(*(work(i % 2) for i in range(6)))

    asyncio.run(main())


def test_a_trace_is_used_once_and_a_decorated_function_has_a_new_one_for_each_call():
    trace = trueno.trace("probe")

    @trace
    def work(error=None):
        assert work.trace is not trace
        if error:
            raise error

    assert work.trace is None
    work()
    first = work.trace
    with pytest.raises(ZeroDivisionError):
        work(ZeroDivisionError)
    assert first is not work.trace is not trace and first.seconds > 0 < work.trace.seconds
    with trace, pytest.raises(TruenoError, match="this trace has been used; make a new one"):
        trace.__enter__()
    with pytest.raises(TruenoError, match="this trace has been used; decorate with a new one"):
        trace(work)


def test_what_is_chosen_in_another_way_holds_without_a_guard():
    """A batch runs in a state that no scope leads to; what a guard computes again runs there too."""
    with GUARD:
        chosen = state.choosing(("reference",), "trueno.Batch")
        with state.entered(chosen):
            request = requested()
            assert request.names == ("reference",)
            with chosen.unguarded() as plain:
                assert now() is plain
                assert (requested(), plain.rules, plain.traced) == (request, (), chosen.traced)
            assert now() is chosen


def test_the_default_of_the_process_holds_where_no_scope_says_otherwise():
    trueno.set_default("reference")
    try:
        assert requested().names == ("reference",)
        with GUARD, trueno.trace():
            assert requested().names == ("reference",)
        with trueno.use():
            assert not requested().names
    finally:
        trueno.set_default()
