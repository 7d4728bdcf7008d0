"""The keys of a manifest: one table, from which the check and the JSON Schema for editors are derived.

The table uses the keywords of JSON Schema, and `like` beside them says in a sentence what is allowed.
`refuse` implements only the keywords that the table uses.
"""

import re
from typing import Any

from trueno.errors import suggestion

Shape = dict[str, Any]
"""The allowed values, as JSON Schema, with `like`."""

LARGEST = 8192
"""The most bytes of a manifest: the parser's time and memory grow with the square of a dotted key's length.

The worst text of this size takes 0.2 s and 64 MB, one of 64 KiB 20 s; manifests have a few hundred bytes.
"""

_NAME = r"[A-Za-z_]\w*"
_PATH = rf"{_NAME}(\.{_NAME})*"


def _text(pattern: str, like: str) -> Shape:
    return {"type": "string", "pattern": f"^{pattern}$", "like": like}


def _list(of: Shape, like: str, **limits: Any) -> Shape:
    return {"type": "array", "items": of, "like": like} | limits


def _table(keys: dict[str, Shape], **limits: Any) -> Shape:
    return {"type": "object", "properties": keys, "additionalProperties": False, "like": "a table"} | limits


FLAG: Shape = {"type": "boolean", "like": "true or false"}
TEXT = _text(r"[\s\S]*\S[\s\S]*", "a text that is not empty")
COUNT: Shape = {"type": "integer", "minimum": 1, "like": "a whole number, 1 or more"}

DEFAULTS: dict[str, Shape] = {  # the allowed defaults, for each type of variable
    "bool": FLAG,
    "int": {"type": "integer", "like": "a whole number"},
    "count": COUNT,
    "str": {"type": "string", "like": "a text"},
    "names": _list(_text(r"[^\s,]+", "a name"), "a list of names"),
    "seconds": {
        "type": "number",
        "exclusiveMinimum": 0,
        "exclusiveMaximum": 1e6,
        "like": "a number of seconds above 0",
    },
}

VARIABLE = _table(
    {
        "type": {"enum": list(DEFAULTS), "description": "how the variable is read"},
        "default": {"description": "its value if it is not set; no value if this is omitted"},
        "help": {"description": "one sentence for `trueno doctor`"} | TEXT,
    },
    required=["type", "help"],
    allOf=[
        {"if": {"properties": {"type": {"enum": [word]}}}, "then": {"properties": {"default": shape}}}
        for word, shape in DEFAULTS.items()
    ],
)

MODULES: Shape = {"description": "modules that must be installed; they are not imported"} | _list(
    _text(_PATH, "the name of a module"), "a list of modules"
)
PLATFORM = _table(
    {
        "any_path": {"description": "one of these files or folders must exist; ${NAME} is the environment's"}
        | _list(TEXT, "a list of paths, one or more", minItems=1),
        "modules": MODULES | {"description": "modules that must be installed there, in the place of the others"},
    }
)
REQUIRE = _table({"modules": MODULES} | dict.fromkeys(("linux", "darwin", "win32", "emscripten"), PLATFORM))

TABLE: Shape = _table(
    {
        "name": {"description": "the backend's name, equal to its entry point's"}
        | _text("[a-z][a-z0-9_]*", "lower-case letters, digits and _, the first a letter"),
        "api": {"description": "lowest and highest version of the backend protocol that it implements"}
        | _list(COUNT, "[lowest, highest]", minItems=2, maxItems=2),
        "kind": {"description": "what it runs on", "enum": ["cpu", "gpu"]},
        "tier": {
            "description": "decides between backends of nearly equal cost: scalar 10, simd 20, GPUs 30",
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "like": "a whole number, 0 or more",
        },
        "opt_in": {"description": "used only when it is named", "default": False} | FLAG,
        "atomic": {"description": "a kernel that raises has written nothing", "default": False} | FLAG,
        "factory": {"description": "creates the backend; called once per process, without an argument"}
        | _text(f"{_PATH}:{_NAME}", "like 'package.module:Class'"),
        "arrays": {"description": "array types that it owns; its kernels take the first", "default": ["numpy:ndarray"]}
        | _list(_text(f"{_PATH}:{_PATH}", "like 'numpy:ndarray'"), "a list of types like 'numpy:ndarray'"),
        "half": {
            "description": "ops with their own kernels for float16 and bfloat16 on its arrays; * asks `supports`",
            "default": [],
        }
        | _list(_text(rf"({_NAME}|\*)", "the name of an op, or *"), "a list of names of ops"),
        "install": {"description": "the command that installs what is missing"} | TEXT,
        "unavailable": {"description": "why no release of it can run yet, as a sentence"} | TEXT,
        "require": {"description": "requirements, checked before any of its code runs", "default": {}} | REQUIRE,
        "settings": {
            "description": "its own environment variables",
            "type": "object",
            "patternProperties": {r"^TRUENO_[A-Z][A-Z0-9_]*$": VARIABLE},
            "additionalProperties": False,
            "default": {},
            "like": "a table of variables named TRUENO_…",
        },
    },
    required=["name", "api", "kind"],
    anyOf=[{"required": ["factory"]}, {"required": ["unavailable"]}],
)


def default(key: str) -> Any:
    """The value of a key that a manifest omits."""
    return TABLE["properties"][key].get("default", "")


def schema() -> dict[str, Any]:
    """The table as JSON Schema 2020-12, with which editors check a `backend.toml`."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Manifest of a backend of trueno",
        "description": f"A TOML file of at most {LARGEST} bytes.",
        "$comment": "Generated by `python -m trueno.discovery.manifest`; edit the table in keys.py instead.",
    }
    return {**head, **_without_sentences(TABLE)}


def _without_sentences(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {word: _without_sentences(inner) for word, inner in shape.items() if word != "like"}
    return [_without_sentences(inner) for inner in shape] if isinstance(shape, list) else shape


TYPES: dict[str, Any] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,)
}  # fmt: skip


def refuse(value: Any, shape: Shape = TABLE, at: str = "", near: bool = True) -> str:
    """Why `shape` refuses `value` at the key `at`, as a sentence; nothing if it allows it.

    `tier is 'high'; it must be a whole number, 0 or more`.  near: whether it names a key or word that is spelt alike.
    """
    if "enum" in shape and value not in shape["enum"]:
        like = suggestion(value, shape["enum"]) if near and isinstance(value, str) else ""
        return f"{at} is {shown(value)}; it must be one of {' '.join(shape['enum'])}{like}"
    kind = shape.get("type")
    if kind and not _fits(value, kind, shape):
        return f"{at or 'the manifest'} is {shown(value)}; it must be {shape['like']}"
    if kind == "array":
        for i, item in enumerate(value):
            if problem := refuse(item, shape["items"], f"{at}[{i}]", near):
                return problem
    return _refuse_keys(value, shape, at, near) if isinstance(value, dict) else ""


def _fits(value: Any, kind: str, shape: Shape) -> bool:
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if kind == "string":
        return "pattern" not in shape or bool(re.fullmatch(shape["pattern"], value, re.ASCII))
    if kind == "array":
        return bool(shape.get("minItems", 0) <= len(value) <= shape.get("maxItems", len(value)))
    if "exclusiveMinimum" in shape:
        return bool(shape["exclusiveMinimum"] < value < shape["exclusiveMaximum"])
    return kind not in ("integer", "number") or bool(value >= shape.get("minimum", value))


def _refuse_keys(value: dict[Any, Any], shape: Shape, at: str, near: bool) -> str:
    keys, patterns = shape.get("properties", {}), shape.get("patternProperties", {})
    for key, inner in value.items():
        if not isinstance(key, str):
            return f"{at or 'the manifest'} has the key {shown(key)}; every key must be a text"
        within = f"{at}.{key}" if at else key
        expected = keys.get(key) or next((s for p, s in patterns.items() if re.fullmatch(p, key, re.ASCII)), None)
        if expected is not None:
            if problem := refuse(inner, expected, within, near):
                return problem
        elif not shape.get("additionalProperties", True):
            allowed = f"known: {' '.join(keys)}" if keys else f"it must be {shape['like']}"
            return f"unknown key {within!r}; {allowed}{suggestion(key, keys) if near else ''}"
    for key in shape.get("required", ()):
        if key not in value:
            return f"{at + '.' if at else ''}{key} is missing"
    if "anyOf" in shape and not any(refuse(value, s, near=False) == "" for s in shape["anyOf"]):
        return f"{' or '.join(key for s in shape['anyOf'] for key in s['required'])} is missing"
    for case in shape.get("allOf", ()):
        if not refuse(value, case["if"], at, near=False) and (problem := refuse(value, case["then"], at, near)):
            return problem
    return ""


def shown(value: Any) -> str:
    """A value for a message: `repr`, truncated if it is long."""
    try:
        text = repr(value)
    except Exception:  # a number with thousands of digits, or an object with a faulty repr
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
