"""The hooks that there are: what each is asked, and what its answer means."""

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
    """The hooks.  An implementation takes those of the arguments that it needs, by name."""

    def trueno_commands(self, app: "typer.Typer") -> None:
        """Add commands to the command line `trueno`: `@app.command()` or `app.add_typer(...)`.

        `app` is empty and the plugin's own; its commands join the core's, whose names are taken.
        """

    def trueno_select(self, call: "Call", candidates: "Sequence[Candidate]") -> str | None:
        """The policy of a site: the name of the candidate that is to run calls of this key; None abstains.

        Asked once a key, for automatic choices; candidates have `name`, predicted `seconds` and where these come from
        (`source`), best first.  The first plugin that answers decides.
        """

    def trueno_on_event(self, event: "Event") -> None:
        """Something happened: a decision, a fallback, a transfer …; `trueno.events.stream.KINDS` lists them.

        Called in the thread where it happened, while the call waits.  One that raises is not called again.
        """

    def trueno_doctor_section(self) -> "str | list[str]":  # type: ignore[empty-body]
        """Lines for the report of `trueno doctor`."""


HOOKS = tuple(name for name in vars(Specs) if name.startswith("trueno_"))


def misspelt(name: str, plugin: object) -> list[str]:
    """A sentence for each function that was meant as a hook and is none."""
    said = []
    for attribute in dir(plugin):
        function = inspect.getattr_static(plugin, attribute, None)
        function = getattr(function, "__func__", function)
        options = getattr(function, "trueno_impl", None) if inspect.isfunction(function) else None
        if isinstance(options, dict):
            hook = options.get("specname") or attribute
            if hook not in HOOKS and not options.get("optionalhook"):
                said.append(f'hooks: the plugin "{name}" has {hook}, which is no hook{suggestion(hook, HOOKS)}')
            elif options.get("wrapper") or options.get("hookwrapper"):
                said.append(f'hooks: {hook} of the plugin "{name}" is a wrapper, which is never called')
        elif inspect.isfunction(function) and (attribute in HOOKS or _near(plugin, function, attribute)):
            said.append(
                f'hooks: the plugin "{name}" has {attribute} without @trueno.hooks.hookimpl, so it is never called'
            )
    return said


def _near(plugin: object, function: Any, attribute: str) -> bool:
    """Whether an unmarked function of the plugin itself is named nearly as a hook."""
    home = plugin.__name__ if isinstance(plugin, ModuleType) else function.__module__
    return attribute.startswith("trueno_") and function.__module__ == home and bool(suggestion(attribute, HOOKS))
