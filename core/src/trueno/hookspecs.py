"""The hooks: when each is called, and what its answer means."""

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trueno.errors import suggestion

if TYPE_CHECKING:
    import typer

    from trueno.discovery.protocol import Call
    from trueno.events.stream import Event
    from trueno.select.decision import Candidate


class Specs:
    """The hooks.  An implementation accepts those of the arguments that it needs, by name."""

    def trueno_commands(self, app: "typer.Typer") -> None:
        """Add commands to the command line `trueno`: `@app.command()` or `app.add_typer(...)`.

        `app` is empty and the plugin's own; its commands join the core's, whose names are taken.
        """

    def trueno_select(self, call: "Call", candidates: "Sequence[Candidate]") -> str | None:
        """A site's policy: return the name of the candidate that should run calls of this key; None abstains.

        Called once per key, for automatic choices; candidates have `name`, predicted `seconds` and their origin
        (`source`), best first.  The first answer decides.
        """

    def trueno_on_event(self, event: "Event") -> None:
        """Receives an event: a decision, a fallback, a transfer …; `trueno.events.stream.KINDS` lists them.

        Called in the thread where it happened, while the call waits.  One that raises is not called again.
        """

    def trueno_doctor_section(self) -> "str | list[str]":  # type: ignore[empty-body]
        """Lines for the report of `trueno doctor`."""


HOOKS = tuple(name for name in vars(Specs) if name.startswith("trueno_"))


def misspelt(name: str, plugin: object) -> list[str]:
    """A sentence for each function that seems to be meant as a hook but is not one."""
    sentences = []
    for attribute in dir(plugin):
        function = inspect.getattr_static(plugin, attribute, None)
        function = getattr(function, "__func__", function)
        options = getattr(function, "trueno_impl", None) if inspect.isfunction(function) else None
        if isinstance(options, dict):
            hook = options.get("specname") or attribute
            if hook not in HOOKS and not options.get("optionalhook"):
                sentences.append(f'hooks: the plugin "{name}" has {hook}, which is not a hook{suggestion(hook, HOOKS)}')
            elif options.get("wrapper") or options.get("hookwrapper"):
                sentences.append(f'hooks: {hook} of the plugin "{name}" is a wrapper, which is never called')
        elif inspect.isfunction(function) and (attribute in HOOKS or _near(plugin, function, attribute)):
            sentences.append(
                f'hooks: the plugin "{name}" has {attribute} without @trueno.hooks.hookimpl, so it is never called'
            )
    return sentences


def _near(plugin: object, function: Any, attribute: str) -> bool:
    """Whether an unmarked function of the plugin itself has a name close to a hook's."""
    home = plugin.__name__ if isinstance(plugin, ModuleType) else function.__module__
    return attribute.startswith("trueno_") and function.__module__ == home and bool(suggestion(attribute, HOOKS))
