"""Hooks: what a site or a plugin may add to Trueno beside backends, through pluggy.

A plugin is a module or an object with functions that are named as the methods of `trueno.hookspecs.Specs` and marked:

    from trueno.hooks import hookimpl

    @hookimpl
    def trueno_on_event(event):
        print(event)

It is found through an entry point of the group `trueno.hooks` (`site = "my_site.hooks"`, or `"my_site:object"`),
or handed to `trueno.hooks.register`.  TRUENO_BLOCK and TRUENO_AUTOLOAD hold for hooks too, by the entry point's
name.  Who brings commands alone names a function in the group `trueno.commands` instead.
Plugins are asked in the order of their names; `tryfirst` and `trylast` change that, as in pluggy.
Each implementation is called by itself: what it raises is kept, said once, and costs the others nothing.

pluggy and the plugins are imported when the first hook is due, and never if there is no plugin.  While plugins
are being imported, and inside a hook for the same hook, there are none: what they call of Trueno runs unhooked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

from trueno.changes import changed
from trueno.discovery import index
from trueno.errors import ParameterError, SettingError, TruenoWarning, suggestion, warn
from trueno.events.stream import LISTENING, SINKS, Event
from trueno.firstuse import importing
from trueno.hookspecs import HOOKS, Specs, misspelt
from trueno.locks import ForkSafeLock
from trueno.parsers import FALSE, TRUE
from trueno.settings import settings

if TYPE_CHECKING:
    from pluggy import HookimplMarker, PluginManager

    from trueno.discovery.protocol import Call
    from trueno.select.decision import Candidate

    hookimpl: HookimplMarker

GROUP = "trueno.hooks"
COMMANDS = "trueno.commands"
"""Entry points that name a function as `trueno_commands` is.  It is imported where the command line asks, and nowhere
else: a plugin of hooks is imported by every program."""
App = TypeVar("App")


@dataclass(frozen=True, slots=True)
class _Crew:
    """The plugins, registered: None where there are none.  problems: sentences about those that could not be."""

    manager: "PluginManager | None" = None
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _State:
    """own: registered by hand.  errors: what implementations raised, by plugin and hook.  said: reported already."""

    own: dict[str, object] = field(default_factory=dict)
    crew: _Crew | None = None
    errors: dict[tuple[str, str], BaseException] = field(default_factory=dict)
    reported: dict[str, None] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)


_state = _State()
_lock = ForkSafeLock()  # held for assignments only, never while a plugin's code runs
_busy = local()


def __getattr__(name: str) -> Any:
    if name == "hookimpl":  # the marker of implementations
        with importing:
            from pluggy import HookimplMarker

        globals()[name] = HookimplMarker("trueno")
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- which plugins there are -----------------------------------------------------------------------


def register(plugin: object, name: str | None = None) -> str:
    """Add a plugin by hand; returns its name, by default that of the module or class.

    ParameterError if the name or the object is taken.  Plans are made anew, since it may choose otherwise.
    """
    if isinstance(plugin, type):
        raise ParameterError(f"hooks.register: {plugin.__name__} is a class; give an object of it, or a module")
    name = name or str(getattr(plugin, "__name__", type(plugin).__name__))
    with _lock:
        if name in _state.own:
            raise ParameterError(f'hooks.register: the name "{name}" is taken; give another with name=')
        held = next((n for n, p in _state.own.items() if p is plugin), None)
        if held is not None:
            raise ParameterError(f'hooks.register: this plugin is registered already, as "{held}"')
        _state.own[name] = plugin
    forget()
    for sentence in misspelt(name, plugin):
        report(sentence)
    return name


def unregister(plugin: "object | str") -> None:
    """Take away a plugin that was registered by hand, given itself or by name; ParameterError if there is none."""
    with _lock:
        name = next((n for n, p in _state.own.items() if p is plugin or n == plugin), None)
        if name is None:
            known = f"{suggestion(plugin, _state.own)}" if isinstance(plugin, str) else ""
            raise ParameterError(f"hooks.unregister: {plugin!r} is not registered{known}")
        del _state.own[name]
        for key in [k for k in _state.errors if k[0] == name]:
            del _state.errors[key]
    forget()


def forget() -> None:
    """Look for plugins again at next need, and make plans anew; what is registered by hand stays."""
    with _lock:
        _state.crew = None
    changed()


def _reloaded() -> None:  # the settings, which may block others now; plans are forgotten by their own listener
    with _lock:
        _state.crew = None
        _state.errors.clear()
        _state.reported.clear()


settings.on_reload(_reloaded)


def _manager() -> "PluginManager | None":
    crew = _state.crew
    if crew is not None:
        return crew.manager
    if getattr(_busy, "gathering", False):
        return None
    _busy.gathering = True
    try:
        while True:
            own = dict(_state.own)
            made = _gather(own)
            with _lock:
                if _state.crew is None and own == _state.own:
                    _state.crew = made
                    break
                if _state.crew is not None:  # another thread was faster
                    return _state.crew.manager
    finally:
        _busy.gathering = False
    for sentence in made.problems:
        report(sentence)
    return made.manager


def _gather(own: dict[str, object]) -> _Crew:
    problems: list[str] = []
    found = _installed(GROUP, problems)
    for name, plugin in own.items():
        if name in found:
            problems.append(f'hooks: "{name}" is registered by hand, and installed too; the installed one is left out')
        found[name] = plugin
    if not found:
        return _Crew(None, tuple(problems))
    from pluggy import HookspecMarker, PluginManager

    spec = HookspecMarker("trueno")
    for hook in HOOKS:
        spec(firstresult=hook == "trueno_select")(getattr(Specs, hook))
    manager = PluginManager("trueno")
    manager.add_hookspecs(Specs)
    for name in sorted(found, reverse=True):  # pluggy asks last the one that came first
        try:
            problems += misspelt(name, found[name])
            manager.register(found[name], name)
        except Exception as error:
            problems.append(f'hooks: the plugin "{name}" is refused: {" ".join(str(error).split())}')
    return _Crew(manager, tuple(problems))


def _installed(group: str, problems: list[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    named: dict[str, list[Any]] = {}
    try:
        known = index.points()
    except SettingError:
        raise
    except Exception as error:  # ours: what was registered by hand is asked all the same
        problems.append(f"hooks: installed plugins cannot be found: {type(error).__name__}: {error}")
        return {}
    for point in known:
        if point.group == group and _allowed(point.name):
            named.setdefault(point.name, []).append(point)
    for name, several in sorted(named.items()):
        if len({(p.distribution, p.value) for p in several}) > 1:
            rivals = " and ".join(sorted(p.distribution or p.value for p in several))
            problems.append(f'hooks: "{name}" is brought by {rivals}; none is loaded, uninstall one')
            continue
        try:
            found[name] = _load(several[0].value)
        except (Exception, SystemExit) as error:
            _state.errors[name, "import"] = error
            problems.append(f'hooks: the plugin "{name}" cannot be loaded: {type(error).__name__}: {error}')
    return found


def _load(value: str) -> object:
    module, _, attributes = value.partition(":")
    with importing:
        plugin: Any = import_module(module.strip())
        for attribute in attributes.strip().split(".") if attributes else ():
            plugin = getattr(plugin, attribute)
        return plugin() if isinstance(plugin, type) else plugin


def _allowed(name: str) -> bool:
    if name.lower() in settings.get("TRUENO_BLOCK"):
        return False
    words = settings.get("TRUENO_AUTOLOAD").strip().lower()
    return words in TRUE or (words not in FALSE and name.lower() in [w.strip() for w in words.split(",")])


# ---- asking them -----------------------------------------------------------------------------------


def implemented(hook: str) -> bool:
    """Whether anyone implements this hook; imports nothing where no plugin is installed or registered."""
    manager = _manager()
    return manager is not None and bool(getattr(manager.hook, hook).get_hookimpls())


def _ask(hook: str, give: Callable[[], dict[str, Any]], take: Callable[[str, Any, dict[str, Any]], bool | str]) -> None:
    """Call every implementation by itself with what `give` makes for it.

    `take` gets the plugin's name, its answer, and what it was given; it says whether that is enough, or what is wrong.
    """
    manager = _manager()
    within: set[str] = _busy.__dict__.setdefault("within", set())
    if manager is None or hook in within:
        return
    within.add(hook)
    wrong: list[str] = []
    try:
        for one in reversed(getattr(manager.hook, hook).get_hookimpls()):
            key = (one.plugin_name, hook)
            if one.wrapper or one.hookwrapper or (hook == "trueno_on_event" and key in _state.errors):
                continue
            arguments = give()
            try:
                answer = one.function(*(arguments[name] for name in one.argnames))
                enough = take(key[0], answer, arguments)  # an answer may be any object, that raises when looked at
            except (Exception, SystemExit) as error:
                _state.errors.setdefault(key, error)
                gone = "; it is not called again" if hook == "trueno_on_event" else ""
                wrong.append(f'hooks: the plugin "{key[0]}" failed in {hook}: {type(error).__name__}: {error}{gone}')
                continue
            if isinstance(enough, str):
                wrong.append(f'hooks: {hook} of the plugin "{key[0]}" gave {enough}')
            elif enough:
                break
    finally:
        within.discard(hook)
    for sentence in wrong:  # after all were asked: a warning may be an error here
        report(sentence)


def select(call: "Call", candidates: "Sequence[Candidate]") -> str | None:
    """What a site's policy wants to run this call, the name of one of `candidates`; None if nobody says."""
    names = [c.name for c in candidates]
    found: list[str] = []

    def take(_: str, answer: Any, __: Any) -> bool | str:
        if answer is None:
            return False
        if not isinstance(answer, str):
            return f"a {type(answer).__name__}; it must be one of {', '.join(names)}, or None"
        if answer in names:
            found.append(str(answer))
            return True
        return f"{answer!r}, which is none of {', '.join(names)}"

    _ask("trueno_select", lambda: {"call": call, "candidates": tuple(candidates)}, take)
    return found[0] if found else None


def on_event(event: Event) -> None:
    """Tell everyone who listens to events."""
    _ask("trueno_on_event", lambda: {"event": event}, lambda *_: False)


def _listening() -> bool:
    """Whether anyone would take an event now."""
    try:
        return implemented("trueno_on_event")
    except TruenoWarning:  # warnings are errors here, and a plugin could not be read: `_tell` deals with that
        return True


def _tell(event: Event) -> None:
    """Events, as `trueno.events.stream` gives them to a sink."""
    try:
        if implemented("trueno_on_event"):
            on_event(event)
    except TruenoWarning:  # warnings are errors here; `problems` has kept it, and nobody else is left out
        return


SINKS["the hooks"], LISTENING["the hooks"] = _tell, _listening


def commands(new: "Callable[[], App]") -> "list[tuple[str, App]]":
    """The commands of plugins: each plugin's name, and the app, made by `new`, that it filled."""
    found: list[tuple[str, App]] = []
    problems: list[str] = []
    for name, add in _installed(COMMANDS, problems).items():
        app = new()
        try:
            add(app)  # type: ignore[operator]
            found.append((name, app))
        except (Exception, SystemExit) as error:
            problems.append(f'hooks: the plugin "{name}" failed in {COMMANDS}: {type(error).__name__}: {error}')
    for sentence in problems:
        report(sentence)

    def take(plugin: str, _: Any, arguments: dict[str, Any]) -> bool:
        found.append((plugin, arguments["app"]))
        return False

    _ask("trueno_commands", lambda: {"app": new()}, take)
    return found


def doctor_sections() -> list[tuple[str, list[str]]]:
    """What plugins add to the doctor's report: each plugin's name, and its lines."""
    found: list[tuple[str, list[str]]] = []

    def take(plugin: str, answer: Any, _: Any) -> bool | str:
        lines = answer.splitlines() if isinstance(answer, str) else answer
        if isinstance(lines, (list, tuple)) and all(isinstance(line, str) for line in lines):
            found.append((plugin, list(lines)))
            return False
        return False if answer is None else f"{type(answer).__name__}; it must be text or lines of text"

    _ask("trueno_doctor_section", dict, take)
    return found


# ---- what went wrong -------------------------------------------------------------------------------


def report(sentence: str) -> None:
    """Keep what is wrong with a plugin for the doctor, and warn of it, once a process."""
    with _lock:
        _state.reported[sentence] = None
        new = sentence not in _state.said
        _state.said.add(sentence)
    if new:
        warn(sentence)


def problems() -> list[str]:
    """Everything that is known to be wrong with plugins of hooks, as sentences; loads them."""
    _manager()
    return list(_state.reported)


def errors() -> dict[tuple[str, str], BaseException]:
    """What plugins raised, by plugin and hook (`import` where it could not be loaded), with the traceback."""
    return dict(_state.errors)
