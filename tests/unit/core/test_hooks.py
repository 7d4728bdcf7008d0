"""Hooks: found in order, called by themselves, and nothing that is wrong with one costs another."""

import subprocess
import sys
import textwrap
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import trueno
from trueno import hooks
from trueno.discovery import index
from trueno.discovery.index import Point
from trueno.errors import ParameterError, TruenoWarning
from trueno.events.stream import emit, stats
from trueno.hooks import hookimpl
from trueno.settings import settings


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No plugins but those of the test; as before afterwards."""
    monkeypatch.setattr(hooks, "_state", hooks._State())
    monkeypatch.setattr(index, "points", lambda refresh=False: [])
    for name in ("TRUENO_BLOCK", "TRUENO_AUTOLOAD"):
        monkeypatch.delenv(name, raising=False)
    settings.reload()
    yield
    monkeypatch.undo()
    settings.reload()


@pytest.fixture
def install(monkeypatch, tmp_path):
    """`install(name=source)`: a module a plugin, with an entry point."""
    installed = []

    def install(**sources):
        for name, source in sources.items():
            module = f"hooked_{name}_{tmp_path.name.replace('-', '_')}"
            (tmp_path / f"{module}.py").write_text("from trueno.hooks import hookimpl\n" + textwrap.dedent(source))
            installed.append(Point(hooks.GROUP, name, module, f"dist-{name}"))
        hooks.forget()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(index, "points", lambda refresh=False: list(installed))
    install.points = installed
    return install


def plugin(**functions):
    """An object with these hooks."""
    return type("Made", (), {name: staticmethod(hookimpl(f)) for name, f in functions.items()})()


class Site:
    """A plugin that is an object of a class."""

    def __init__(self, word=None):
        self.word = word
        self.seen = []

    @hookimpl
    def trueno_select(self, call, candidates):
        self.seen.append((call, [c.name for c in candidates]))
        return self.word

    @hookimpl
    def trueno_on_event(self, event):
        self.seen.append(event.kind)


CANDIDATES = [SimpleNamespace(name="simd"), SimpleNamespace(name="scalar")]


class Wild:
    """An answer that raises whatever is done with it."""

    def _raise(self, *_):
        raise RuntimeError("do not touch")

    __eq__ = __repr__ = __str__ = __bool__ = _raise
    __hash__ = None


class WildWord(str):
    __slots__ = ()

    def __eq__(self, other):
        raise RuntimeError("do not compare")

    __hash__ = str.__hash__


@pytest.mark.parametrize("answer", [np.ones(3), Wild(), WildWord("simd"), 5, b"simd", ["simd"], SimpleNamespace()])
def test_a_wild_answer_is_isolated(answer):
    hooks.register(SimpleNamespace(trueno_select=hookimpl(lambda: answer, tryfirst=True)), "wild")
    hooks.register(Site("scalar"), "good")
    with pytest.warns(TruenoWarning, match='"wild"'):
        assert hooks.select("call", CANDIDATES) == "scalar"


def test_an_error_of_our_own_leaves_the_hooks_that_were_registered(monkeypatch):
    def clash():
        raise KeyError("/gone")

    site = Site("scalar")
    hooks.register(site, "good")
    monkeypatch.setattr(index, "points", clash)
    hooks.forget()
    with pytest.warns(TruenoWarning, match="installed plugins cannot be found: KeyError"):
        hooks.on_event(SimpleNamespace(kind="run"))
    assert site.seen == ["run"] and hooks.select("call", CANDIDATES) == "scalar"


# ---- which plugins there are -----------------------------------------------------------------------


def test_nobody_implements_anything_at_first():
    assert not any(hooks.implemented(hook) for hook in hooks.HOOKS)
    assert hooks.select("call", CANDIDATES) is None
    assert hooks.commands(list) == [] and hooks.doctor_sections() == [] and hooks.problems() == []


def test_the_hooks_are_these_four():
    assert set(hooks.HOOKS) == {"trueno_commands", "trueno_select", "trueno_on_event", "trueno_doctor_section"}
    assert all(getattr(hooks.Specs, hook).__doc__ for hook in hooks.HOOKS)


def test_trueno_hooks_is_this_module():
    assert trueno.hooks is hooks


def test_register_and_unregister():
    site = Site("scalar")
    assert hooks.register(site) == "Site"
    assert hooks.implemented("trueno_select") and not hooks.implemented("trueno_commands")
    assert hooks.select("call", CANDIDATES) == "scalar"
    hooks.unregister(site)
    assert not hooks.implemented("trueno_select")
    hooks.register(site, "again")
    hooks.unregister("again")
    assert hooks.select("call", CANDIDATES) is None


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (lambda: hooks.register(Site(), "one"), 'the name "one" is taken'),
        (lambda: hooks.register(ONE, "two"), 'registered already, as "one"'),
        (lambda: hooks.register(Site), "Site is a class; pass an object"),
        (lambda: hooks.unregister("onne"), 'not registered; did you mean "one"'),
        (lambda: hooks.unregister(Site()), "is not registered"),
    ],
)
def test_registering_wrongly(wrong, sentence):
    hooks.register(ONE, "one")
    with pytest.raises(ParameterError, match=sentence):
        wrong()


ONE = Site()


def test_registering_makes_plans_anew():
    from trueno.dispatch import state

    site, before = Site(), state.generation
    hooks.register(site)
    registered = state.generation
    hooks.unregister(site)
    assert before < registered < state.generation


def test_plugins_are_loaded_from_entry_points(install):
    install(site="@hookimpl\ndef trueno_select(candidates):\n    return candidates[-1].name")
    module = install.points[0].value
    assert module not in sys.modules
    assert hooks.implemented("trueno_select")
    assert module in sys.modules
    assert hooks.select("call", CANDIDATES) == "scalar"


def test_an_entry_point_may_name_an_object_or_a_class(install):
    install(
        a="class Policy:\n    @hookimpl\n    def trueno_select(self, call):\n        return 'simd'\nobject = Policy()",
    )
    point = install.points.pop()
    for name in ("object", "Policy"):
        install.points[:] = [Point(hooks.GROUP, "a", f"{point.value}:{name}", "d")]
        hooks.forget()
        assert hooks.select("call", CANDIDATES) == "simd"


@pytest.mark.parametrize(
    "variable, value, loaded",
    [
        ("TRUENO_BLOCK", "a", ["b"]),
        ("TRUENO_BLOCK", "A,b", []),
        ("TRUENO_AUTOLOAD", "0", []),
        ("TRUENO_AUTOLOAD", "off", []),
        ("TRUENO_AUTOLOAD", "B, c", ["b"]),
        ("TRUENO_AUTOLOAD", "yes", ["a", "b"]),
    ],
)
def test_what_is_blocked_is_not_even_imported(install, monkeypatch, variable, value, loaded):
    source = "@hookimpl\ndef trueno_doctor_section():\n    return 'here'"
    install(a=source, b=source)
    monkeypatch.setenv(variable, value)
    settings.reload()
    assert [name for name, _ in hooks.doctor_sections()] == loaded
    assert [p.name for p in install.points if p.value in sys.modules] == loaded


def test_two_distributions_of_one_name_are_both_refused(install):
    source = "@hookimpl\ndef trueno_doctor_section():\n    return 'here'"
    install(a=source, b=source)
    install.points.append(Point(hooks.GROUP, "a", install.points[0].value, "rival"))
    install.points.append(install.points[1])  # the same twice is one
    with pytest.warns(TruenoWarning, match='"a" is installed by dist-a and rival; none is loaded'):
        assert [name for name, _ in hooks.doctor_sections()] == ["b"]


def test_the_order_is_that_of_the_names(install):
    source = "@hookimpl\ndef trueno_select():\n    return {!r}"
    install(b=source.format("scalar"), a="@hookimpl\ndef trueno_select():\n    return None", c=source.format("simd"))
    assert hooks.select("call", CANDIDATES) == "scalar"
    install.points.reverse()
    hooks.forget()
    assert hooks.select("call", CANDIDATES) == "scalar"
    hooks.register(SimpleNamespace(trueno_select=hookimpl(lambda: "simd", tryfirst=True)), "z")
    assert hooks.select("call", CANDIDATES) == "simd"


def test_a_site_s_own_plugin_wins_over_an_installed_one_of_its_name(install):
    install(site="@hookimpl\ndef trueno_select():\n    return 'simd'")
    hooks.register(Site("scalar"), "site")
    with pytest.warns(TruenoWarning, match='"site" is registered from code and installed too'):
        assert hooks.select("call", CANDIDATES) == "scalar"


# ---- what is wrong with one costs nothing ----------------------------------------------------------


def test_a_plugin_that_cannot_be_loaded(install):
    install(
        bad="raise ImportError('no libfoo')",
        quits="import sys; sys.exit(3)",
        good="@hookimpl\ndef trueno_doctor_section():\n    return 'a\\nb'",
    )
    install.points.append(Point(hooks.GROUP, "gone", "there_is_no_such_module", "d"))
    install.points.append(Point(hooks.GROUP, "less", f"{install.points[2].value}:missing", "d"))
    with pytest.warns(TruenoWarning) as caught:
        assert hooks.doctor_sections() == [("good", ["a", "b"])]
    problems = hooks.problems()
    assert len(problems) == len(caught) == 4
    assert problems[0] == 'hooks: the plugin "bad" cannot be loaded: ImportError: no libfoo'
    assert '"gone" cannot be loaded: ModuleNotFoundError' in problems[1]
    assert '"less" cannot be loaded: AttributeError' in problems[2]
    assert '"quits" cannot be loaded: SystemExit: 3' in problems[3]
    assert hooks.errors()["bad", "import"].__traceback__ is not None
    settings.reload()
    assert hooks.problems() == problems  # and warned of once only: a second warning would be an error here


@pytest.mark.parametrize(
    "source, sentence",
    [
        ("@hookimpl\ndef trueno_selct(call): pass", 'which is not a hook; did you mean "trueno_select"'),
        ("def trueno_select(call): pass", "has trueno_select without @trueno.hooks.hookimpl, so it is never called"),
        ("def trueno_on_evnt(event): pass", "has trueno_on_evnt without @trueno.hooks.hookimpl"),
        ("@hookimpl\ndef trueno_select(cal): pass", 'plugin "odd" is refused: .*cal'),
        ("@hookimpl(wrapper=True)\ndef trueno_select():\n    yield", "is a wrapper, which is never called"),
    ],
)
def test_misspelt_hooks_are_reported(install, source, sentence):
    install(odd=source, good="@hookimpl\ndef trueno_select(): return 'simd'")
    with pytest.warns(TruenoWarning, match=sentence):
        assert hooks.select("call", CANDIDATES) == "simd"
    assert 'the plugin "odd"' in hooks.problems()[0]


def test_names_that_are_no_hooks_are_left_alone(install):
    install(
        fine="""
        import math
        trueno_select_table = {}
        def helper(): pass
        @hookimpl(specname="trueno_select")
        def any(): return "simd"
        """
    )
    assert hooks.select("call", CANDIDATES) == "simd"
    assert hooks.problems() == []


def test_a_misspelt_hook_is_reported_when_it_is_registered():
    with pytest.warns(TruenoWarning, match="trueno_selct"):
        hooks.register(plugin(trueno_selct=lambda call: None), "odd")


def test_each_implementation_fails_by_itself():
    def fails(call):
        raise ValueError("no policy today")

    hooks.register(plugin(trueno_select=fails), "a")
    hooks.register(Site("scalar"), "b")
    with pytest.warns(TruenoWarning, match='the plugin "a" failed in trueno_select: ValueError: no policy today'):
        assert hooks.select("call", CANDIDATES) == "scalar"
    assert hooks.select("call", CANDIDATES) == "scalar"  # a second warning would be an error here
    assert isinstance(hooks.errors()["a", "trueno_select"], ValueError)
    hooks.unregister("a")
    assert not hooks.errors()


def test_all_are_asked_even_where_warnings_are_errors():
    def fails():
        raise SystemExit

    hooks.register(plugin(trueno_doctor_section=fails), "a")
    asked = []
    hooks.register(plugin(trueno_doctor_section=lambda: asked.append(1)), "b")
    with pytest.raises(TruenoWarning, match="SystemExit"):
        hooks.doctor_sections()
    assert asked == [1]


def test_ctrl_c_is_not_swallowed():
    def interrupted():
        raise KeyboardInterrupt

    hooks.register(plugin(trueno_doctor_section=interrupted), "a")
    with pytest.raises(KeyboardInterrupt):
        hooks.doctor_sections()
    with pytest.raises(KeyboardInterrupt):  # it is not taken for being inside that hook still
        hooks.doctor_sections()


def test_an_answer_that_is_none_of_the_candidates():
    hooks.register(Site("cudda"), "a")
    hooks.register(Site("simd"), "b")
    with pytest.warns(TruenoWarning, match="plugin \"a\" returned 'cudda', which is not one of simd, scalar"):
        assert hooks.select("call", CANDIDATES) == "simd"


def test_a_section_that_is_no_text():
    hooks.register(plugin(trueno_doctor_section=lambda: 3), "a")
    hooks.register(plugin(trueno_doctor_section=lambda: None), "b")
    hooks.register(plugin(trueno_doctor_section=lambda: ["x", "y"]), "c")
    with pytest.warns(TruenoWarning, match="returned int; it must be text or lines of text"):
        assert hooks.doctor_sections() == [("c", ["x", "y"])]


# ---- events ----------------------------------------------------------------------------------------


def test_events_reach_the_hook():
    site = Site()
    hooks.register(site)
    emit("fallback", "add", "fake", to="simd")
    assert site.seen == ["fallback"]


def test_a_hook_that_fails_on_an_event_is_left_out_and_the_others_are_not():
    def fails(event):
        asked.append(event)
        raise RuntimeError("full disk")

    asked, site = [], Site()
    hooks.register(plugin(trueno_on_event=fails), "a")
    hooks.register(site, "b")
    with pytest.warns(TruenoWarning, match='"a" failed in trueno_on_event: RuntimeError: full disk; it is not called'):
        emit("probe")
    emit("probe")
    assert len(asked) == 1 and site.seen == ["probe", "probe"]


def test_where_warnings_are_errors_an_event_ends_no_call_and_drops_no_other_hook():
    def fails(event):
        raise RuntimeError

    site = Site()
    hooks.register(plugin(trueno_on_event=fails), "a")
    hooks.register(site, "b")
    emit("probe")  # warnings are errors in the tests
    emit("probe")
    assert site.seen == ["probe", "probe"]
    assert "failed in trueno_on_event" in hooks.problems()[0]


def test_a_hook_may_call_ops(install):
    import numpy as np

    seen = []

    def calls(event):
        seen.append(event.kind)
        trueno.dispatch.state.forget_plans() if len(seen) < 50 else None  # so that each call decides, which is an event
        trueno.add(np.ones(4, np.float32), np.ones(4, np.float32))

    import trueno.dispatch.state

    hooks.register(plugin(trueno_on_event=calls), "a")
    stats(reset=True)
    emit("probe", backend="simd")
    assert seen == ["probe"]
    assert stats().events["decision"] >= 1


def test_a_policy_may_ask_ops_itself():
    depth = []

    def policy(call, candidates):
        depth.append(call)
        assert len(depth) < 10
        return hooks.select("inner", CANDIDATES) or "scalar"

    hooks.register(plugin(trueno_select=policy), "a")
    assert hooks.select("outer", CANDIDATES) == "scalar"
    assert depth == ["outer"]


def test_a_plugin_that_uses_trueno_while_it_is_imported(install):
    install(
        early="from trueno import hooks\nassert not hooks.implemented('trueno_select')\n"
        "@hookimpl\ndef trueno_select(): return 'simd'"
    )
    assert hooks.select("call", CANDIDATES) == "simd"
    assert hooks.problems() == []


def test_threads_that_come_first_together_load_once(install):
    install(one="import time\ntime.sleep(0.01)\n@hookimpl\ndef trueno_select(): return 'simd'", bad="1 / 0")
    found, barrier = [], threading.Barrier(4)

    def ask():
        barrier.wait()
        found.append(hooks.select("call", CANDIDATES))

    with pytest.warns(TruenoWarning) as caught:
        together(ask, 4)
    assert found == ["simd"] * 4
    assert len([w for w in caught if "bad" in str(w.message)]) == 1


def together(work, count):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


# ---- the command line ------------------------------------------------------------------------------

typer = pytest.importorskip("typer", reason="the command line is not installed: pip install 'trueno[cli]'")


def invoke(*args):
    from trueno.cli.app import app
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, list(args), prog_name="trueno")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def shouting(app):
    @app.command()
    def shout(word: str):
        """Say it loud."""
        print(word.upper())


def test_a_plugin_adds_commands():
    def grouped(app):
        more = typer.Typer()
        more.command("one")(lambda: print("1"))
        more.command("two")(lambda: print("2"))
        app.add_typer(more, name="numbers", help="Some numbers.")

    hooks.register(plugin(trueno_commands=shouting), "a")
    hooks.register(plugin(trueno_commands=grouped), "b")
    assert invoke("shout", "hello").stdout == "HELLO\n"
    assert invoke("numbers", "two").stdout == "2\n"
    listed = invoke("--help").stdout
    assert "shout" in listed and "Say it loud." in listed and "numbers" in listed and "doctor" in listed


def test_core_commands_do_not_load_plugins(install):
    install(a="raise RuntimeError('broken')")
    done = invoke("ops")
    assert done.exit_code == 0 and "broken" not in done.stderr
    assert install.points[0].value not in sys.modules


def test_a_broken_plugin_is_said_in_one_line_and_the_rest_works(install):
    install(a="raise RuntimeError('broken')")
    hooks.register(plugin(trueno_commands=shouting), "b")
    done = invoke("shout", "hi")
    assert done.stdout == "HI\n"
    assert done.stderr == 'trueno: warning: hooks: the plugin "a" cannot be loaded: RuntimeError: broken\n'
    done = invoke("nothing")
    assert done.exit_code == 2 and "No such command 'nothing'" in done.stderr


def test_a_plugin_that_fails_half_way_adds_nothing():
    def fails(app):
        shouting(app)
        raise ValueError("half")

    hooks.register(plugin(trueno_commands=fails), "a")
    assert "No such command 'shout'" in invoke("shout", "hi").stderr
    assert "failed in trueno_commands: ValueError: half" in hooks.problems()[0]


def test_a_command_that_typer_cannot_read():
    def odd(app):
        @app.command()
        def odd(x: "Nowhere"):  # noqa: F821 - the point
            pass

    hooks.register(plugin(trueno_commands=odd), "a")
    hooks.register(plugin(trueno_commands=shouting), "b")
    done = invoke("shout", "hi")
    assert done.stdout == "HI\n" and 'commands of the plugin "a" are refused' in done.stderr


def test_a_core_command_is_not_replaced():
    def rogue(app):
        @app.command("ops")
        def ops():
            print("rogue")

        @app.command()
        def extra():
            print("extra")

    hooks.register(plugin(trueno_commands=rogue), "a")
    hooks.register(plugin(trueno_commands=rogue), "b")
    assert "rogue" not in invoke("ops").stdout
    done = invoke("extra")
    assert done.stdout == "extra\n"
    assert 'the plugin "a" brings a command ops, but that is Trueno\'s own' in done.stderr
    assert 'the plugin "b" brings a command extra, but so does "a"' in done.stderr


# ---- as a user has it ------------------------------------------------------------------------------


def test_an_installed_distribution_end_to_end(tmp_path):
    info = tmp_path / "my_site-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-site\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trueno.hooks]\nmy_site = my_site\n")
    (tmp_path / "my_site.py").write_text(
        "from trueno.hooks import hookimpl\n"
        "@hookimpl\n"
        "def trueno_on_event(event):\n"
        "    print(event.kind, event.op, event.backend)\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import trueno\n"
        "assert 'pluggy' not in sys.modules and 'my_site' not in sys.modules\n"
        "from trueno.discovery import registry\n"
        "from trueno.events.stream import emit\n"
        "registry.entries()\n"
        "assert 'pluggy' not in sys.modules and 'my_site' not in sys.modules\n"
        "emit('probe', 'none', 'simd')\n"
        "assert 'pluggy' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "probe none simd" in done.stdout


def test_the_module_says_what_it_does_not_have():
    with pytest.raises(AttributeError, match="hookimp"):
        hooks.hookimp  # noqa: B018
    assert isinstance(hooks, ModuleType)
