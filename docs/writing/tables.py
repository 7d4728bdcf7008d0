"""Pages that are one table: settings, reason codes, events and the manifest."""

from docs.writing.markdown import default, table


def settings_page() -> str:
    """Every variable, from the table that parses them."""
    from trueno.settings import SETTINGS

    rows = []
    for name, setting in SETTINGS.items():
        also = f"<br>`{setting.bare}`" if setting.bare else ""
        rows.append((f"`{name}`{also}", setting.help, setting.parse.takes, default(setting.default)))
    return (
        "# Settings\n\nVariables of the environment, read once. A value that cannot be read is an error, an unknown "
        "`TRUENO_…` a warning. `trueno doctor` shows each with its value and where that comes from; "
        '`trueno.settings.override("TRUENO_FALLBACK", "error")` sets one from code, `trueno.settings.reload()` reads '
        "the environment again. A namespaced variable wins over a bare one. Plugins declare their own in their "
        "manifest: same parser, same table of `doctor`.\n\n"
        + table(("variable", "what it does", "takes", "default"), rows)
    )


def reasons_page() -> str:
    """The vocabulary of the selector, and of the registry."""
    from trueno.select.reasons import REASONS

    return (
        "# Reason codes\n\nEvery candidate of `trueno.explain(…)` and every backend that cannot run carries one of "
        "these words, and no other.\n\n" + table(("code", "meaning"), [(f"`{c}`", text) for c, text in REASONS.items()])
    )


def events_page() -> str:
    """The kinds of event and what each carries."""
    from trueno.events.stream import KINDS

    rows = [
        (f"`{name}`", kind.says, "<br>".join(f"`{k}`: {v}" for k, v in kind.data.items()))
        for name, kind in KINDS.items()
    ]
    return (
        "# Events\n\nOne stream: `trueno.stats()` counts it, `trueno.trace()` records it, `TRUENO_VERBOSE` prints it, "
        "and the hook `trueno_on_event` gets it. Every event has op, backend, detail, start, seconds, bytes, thread; "
        "its `data` depends on the kind.\n\n" + table(("kind", "says", "data"), rows)
    )


def manifest_page() -> str:
    """The keys of a plugin's backend.toml, from the schema that checks them."""
    from trueno.discovery.manifest import schema

    facts = schema()
    rows = []
    for key, value in facts["properties"].items():
        must = "yes" if key in facts.get("required", ()) else ""
        rows.append((f"`{key}`", value.get("description", ""), must, default(value.get("default"))))
    return (
        f"# Manifest\n\nThe keys of a plugin's `backend.toml`. {facts['description']} The set is closed: an unknown "
        "key is an error. The JSON schema is shipped as `trueno/discovery/backend.schema.json`.\n\n"
        + table(("key", "meaning", "required", "default"), rows)
    )


def gates_page() -> str:
    """The gates of `trueno qa`."""
    from trueno.qa.page import page as gates
    from trueno_cuda.gates import add

    return gates({"trueno-cuda": add})
