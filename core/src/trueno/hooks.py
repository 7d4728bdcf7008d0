"""Hooks: what a site or a plugin may add to Trueno besides backends, through pluggy.

A plugin is a module or an object with functions named as the methods of `trueno.hookspecs.Specs`, and marked:

    from trueno.hooks import hookimpl

    @hookimpl
    def trueno_on_event(event):
        print(event)

It is found through an entry point of the group `trueno.hooks` (`site = "my_site.hooks"`, or `"my_site:object"`),
or passed to `trueno.hooks.register`.  TRUENO_BLOCK and TRUENO_AUTOLOAD apply to hooks too, by the entry point's
name.  A plugin that adds only commands names a function in the group `trueno.commands` instead.
Plugins are called in the order of their names; `tryfirst` and `trylast` change that, as in pluggy.
Each implementation is called separately: an exception is stored, reported once, and does not affect the others.

pluggy and the plugins are imported when the first hook is due, and never if no plugin exists.  While plugins
are being imported, and inside a hook for the same hook, no hook is active: their own calls of Trueno run without hooks.
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
"""Entry points that name a function with `trueno_commands`'s signature.  Only the command line imports it, whereas a
plugin of hooks is imported by every program."""
GATES = "trueno.gates"
"""Entry points that name a function which adds gates to `trueno qa`: it is given a `trueno.qa.registry.Gates`."""
App = TypeVar("App")


@dataclass(frozen=True, slots=True)
class _Crew:
    """The registered plugins: None if there are none.  problems: sentences about plugins that were refused."""

    manager: "PluginManager | None" = None
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _State:
    """own: registered from code.  errors: what implementations raised, by plugin and hook.  said: already reported."""

    own: dict[str, object] = field(default_factory=dict)
    crew: _Crew | None = None
    errors: dict[tuple[str, str], BaseException] = field(default_factory=dict)
    reported: dict[str, None] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)


_state = _State()
_lock = ForkSafeLock()  # held for assignments only, never while a plugin's code runs
_busy = local()


if TYPE_CHECKING:
    from pluggy import HookimplMarker

    hookimpl = HookimplMarker("trueno")
else:

    def __getattr__(name: str) -> Any:
        if name == "hookimpl":  # the marker of implementations
            with importing:
                from pluggy import HookimplMarker

            globals()[name] = HookimplMarker("trueno")
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# ---- which plugins there are -----------------------------------------------------------------------


def register(plugin: object, name: str | None = None) -> str:
    """Register a plugin from code; returns its name, by default that of the module or class.

    ParameterError if the name or the object is taken.  Plans are discarded, because the plugin may choose otherwise.
    """
    if isinstance(plugin, type):
        raise ParameterError(f"hooks.register: {plugin.__name__} is a class; pass an object of it, or a module")
    name = name or str(getattr(plugin, "__name__", type(plugin).__name__))
    with _lock:
        if name in _state.own:
            raise ParameterError(f'hooks.register: the name "{name}" is taken; pass another with name=')
        held = next((n for n, p in _state.own.items() if p is plugin), None)
        if held is not None:
            raise ParameterError(f'hooks.register: this plugin is registered already, as "{held}"')
        _state.own[name] = plugin
    forget()
    for sentence in misspelt(name, plugin):
        report(sentence)
    return name


def unregister(plugin: "object | str") -> None:
    """Remove a plugin that was registered from code, by object or by name; ParameterError if there is none."""
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
    """Look for plugins again at next use, and discard plans; plugins registered from code stay."""
    with _lock:
        _state.crew = None
    changed()


def _reloaded() -> None:  # the settings may block other plugins now; plans have their own listener
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
            gathered = _gather(own)
            with _lock:
                if _state.crew is None and own == _state.own:
                    _state.crew = gathered
                    break
                if _state.crew is not None:  # another thread was faster
                    return _state.crew.manager
    finally:
        _busy.gathering = False
    for sentence in gathered.problems:
        report(sentence)
    return gathered.manager


def _gather(own: dict[str, object]) -> _Crew:
    problems: list[str] = []
    plugins = _installed(GROUP, problems)
    for name, plugin in own.items():
        if name in plugins:
            problems.append(f'hooks: "{name}" is registered from code and installed too; the installed one is left out')
        plugins[name] = plugin
    if not plugins:
        return _Crew(None, tuple(problems))
    from pluggy import HookspecMarker, PluginManager

    spec = HookspecMarker("trueno")
    for hook in HOOKS:
        spec(firstresult=hook == "trueno_select")(getattr(Specs, hook))
    manager = PluginManager("trueno")
    manager.add_hookspecs(Specs)
    for name in sorted(plugins, reverse=True):  # pluggy calls the first registered last
        try:
            problems += misspelt(name, plugins[name])
            manager.register(plugins[name], name)
        except Exception as error:
            problems.append(f'hooks: the plugin "{name}" is refused: {" ".join(str(error).split())}')
    return _Crew(manager, tuple(problems))


def _installed(group: str, problems: list[str]) -> dict[str, object]:
    plugins: dict[str, object] = {}
    named: dict[str, list[Any]] = {}
    try:
        points = index.points()
    except SettingError:
        raise
    except Exception as error:  # ours: plugins registered from code are called all the same
        problems.append(f"hooks: installed plugins cannot be found: {type(error).__name__}: {error}")
        return {}
    for point in points:
        if point.group == group and allowed(point.name):
            named.setdefault(point.name, []).append(point)
    for name, several in sorted(named.items()):
        if len({(p.distribution, p.value) for p in several}) > 1:
            rivals = " and ".join(sorted(p.distribution or p.value for p in several))
            problems.append(f'hooks: "{name}" is installed by {rivals}; none is loaded, uninstall one')
            continue
        try:
            plugins[name] = load(several[0].value)
        except (Exception, SystemExit) as error:
            _state.errors[name, "import"] = error
            problems.append(f'hooks: the plugin "{name}" cannot be loaded: {type(error).__name__}: {error}')
    return plugins


def load(value: str) -> object:
    """The object that an entry point names; of a class, an object of it."""
    module, _, attributes = value.partition(":")
    with importing:
        plugin: Any = import_module(module.strip())
        for attribute in attributes.strip().split(".") if attributes else ():
            plugin = getattr(plugin, attribute)
        return plugin() if isinstance(plugin, type) else plugin


def allowed(name: str) -> bool:
    """Whether TRUENO_BLOCK and TRUENO_AUTOLOAD let a plugin of this name in."""
    if name.lower() in settings.get("TRUENO_BLOCK"):
        return False
    words = settings.get("TRUENO_AUTOLOAD").strip().lower()
    return words in TRUE or (words not in FALSE and name.lower() in [w.strip() for w in words.split(",")])


# ---- asking them -----------------------------------------------------------------------------------


def implemented(hook: str) -> bool:
    """Whether any plugin implements this hook; imports nothing where no plugin is installed or registered."""
    manager = _manager()
    return manager is not None and bool(getattr(manager.hook, hook).get_hookimpls())


def _ask(hook: str, give: Callable[[], dict[str, Any]], take: Callable[[str, Any, dict[str, Any]], bool | str]) -> None:
    """Call every implementation separately with what `give` makes for it.

    `take` gets the plugin's name, its answer, and its arguments; it returns whether that is enough, or what is wrong.
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
                enough = take(key[0], answer, arguments)  # an answer may be any object, and may raise when inspected
            except (Exception, SystemExit) as error:
                _state.errors.setdefault(key, error)
                gone = "; it is not called again" if hook == "trueno_on_event" else ""
                wrong.append(f'hooks: the plugin "{key[0]}" failed in {hook}: {type(error).__name__}: {error}{gone}')
                continue
            if isinstance(enough, str):
                wrong.append(f'hooks: {hook} of the plugin "{key[0]}" returned {enough}')
            elif enough:
                break
    finally:
        within.discard(hook)
    for sentence in wrong:  # after all calls: a warning may be an error here
        report(sentence)


def select(call: "Call", candidates: "Sequence[Candidate]") -> str | None:
    """The candidate that a site's policy chooses for this call, by name; None if no plugin chooses."""
    names = [c.name for c in candidates]
    chosen: list[str] = []

    def take(_: str, answer: Any, __: Any) -> bool | str:
        if answer is None:
            return False
        if not isinstance(answer, str):
            return f"a {type(answer).__name__}; it must be one of {', '.join(names)}, or None"
        if answer in names:
            chosen.append(str(answer))
            return True
        return f"{answer!r}, which is not one of {', '.join(names)}"

    _ask("trueno_select", lambda: {"call": call, "candidates": tuple(candidates)}, take)
    return chosen[0] if chosen else None


def on_event(event: Event) -> None:
    """Pass an event to every plugin that listens."""
    _ask("trueno_on_event", lambda: {"event": event}, lambda *_: False)


def _listening() -> bool:
    """Whether any plugin would receive an event now."""
    try:
        return implemented("trueno_on_event")
    except TruenoWarning:  # warnings are errors here, and a plugin could not be loaded: `_tell` handles that
        return True


def _tell(event: Event) -> None:
    """A sink of events for `trueno.events.stream`."""
    try:
        if implemented("trueno_on_event"):
            on_event(event)
    except TruenoWarning:  # warnings are errors here; `problems` has stored it, and no other plugin is left out
        return


SINKS["the hooks"], LISTENING["the hooks"] = _tell, _listening


def commands(new: "Callable[[], App]") -> "list[tuple[str, App]]":
    """The commands of plugins: each plugin's name, and the app (a new one from `new`) that it filled."""
    filled = _filled(COMMANDS, new)

    def take(plugin: str, _: Any, arguments: dict[str, Any]) -> bool:
        filled.append((plugin, arguments["app"]))
        return False

    _ask("trueno_commands", lambda: {"app": new()}, take)
    return filled


def gates(new: "Callable[[], App]") -> "list[tuple[str, App]]":
    """The gates of plugins: each plugin's name, and the collection (a new one from `new`) that it filled."""
    return _filled(GATES, new)


def _filled(group: str, new: "Callable[[], App]") -> "list[tuple[str, App]]":
    """What the functions of a group of entry points fill, a new object each; one that fails is reported."""
    filled: list[tuple[str, App]] = []
    problems: list[str] = []
    for name, add in _installed(group, problems).items():
        app = new()
        try:
            add(app)  # type: ignore[operator]
            filled.append((name, app))
        except (Exception, SystemExit) as error:
            problems.append(f'hooks: the plugin "{name}" failed in {group}: {type(error).__name__}: {error}')
    for sentence in problems:
        report(sentence)
    return filled


def doctor_sections() -> list[tuple[str, list[str]]]:
    """The plugins' parts of the doctor's report: each plugin's name, and its lines."""
    sections: list[tuple[str, list[str]]] = []

    def take(plugin: str, answer: Any, _: Any) -> bool | str:
        lines = answer.splitlines() if isinstance(answer, str) else answer
        if isinstance(lines, (list, tuple)) and all(isinstance(line, str) for line in lines):
            sections.append((plugin, list(lines)))
            return False
        return False if answer is None else f"{type(answer).__name__}; it must be text or lines of text"

    _ask("trueno_doctor_section", dict, take)
    return sections


# ---- what went wrong -------------------------------------------------------------------------------


def report(sentence: str) -> None:
    """Store a problem with a plugin for the doctor, and warn of it once per process."""
    with _lock:
        _state.reported[sentence] = None
        new = sentence not in _state.said
        _state.said.add(sentence)
    if new:
        warn(sentence)


def problems() -> list[str]:
    """All known problems with plugins of hooks, as sentences; loads the plugins."""
    _manager()
    return list(_state.reported)


def errors() -> dict[tuple[str, str], BaseException]:
    """What plugins raised, by plugin and hook (`import` where it could not be loaded), with the traceback."""
    return dict(_state.errors)
