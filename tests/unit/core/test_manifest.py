"""Manifests: the table of keys decides in the check and in the schema alike, and level 0 runs no code of a plugin."""

import json
import os
import random
import re
import sys
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from seeds import fresh_seed
from trueno.discovery import index, keys, manifest
from trueno.discovery.manifest import parse
from trueno.parsers import TYPES
from trueno.settings import Settings

ROOT = Path(__file__).parents[3]
SHIPPED = sorted(ROOT.glob("plugins/*/src/*/*.toml"))


def read(name, value, distribution="", version=""):
    """The manifest that an entry point names, as a scan reads it."""
    point = index.Point(index.BACKENDS, name, value, distribution, version)
    return index._examined(point)[0].parsed()


GOOD = {
    "name": "acme",
    "api": [1, 1],
    "kind": "gpu",
    "tier": 30,
    "opt_in": True,
    "atomic": True,
    "factory": "acme_trueno.backend:Backend",
    "arrays": ["acme.arrays:Array", "acme:Other.Inner"],
    "install": "pip install acme-trueno[all]",
    "require": {
        "modules": ["json", "email.message"],
        "linux": {"any_path": ["/dev/acme"]},
        "darwin": {},
        "win32": {"any_path": ["${SystemRoot}/System32/acme.dll"]},
    },
    "settings": {
        "TRUENO_ACME_DEVICE": {"type": "int", "default": -1, "help": "ordinal"},
        "TRUENO_ACME_FAST": {"type": "bool", "default": True, "help": "fast"},
        "TRUENO_ACME_WAIT": {"type": "seconds", "default": 3, "help": "wait"},
        "TRUENO_ACME_ONLY": {"type": "names", "default": ["A", "b"], "help": "only these"},
        "TRUENO_ACME_PATH": {"type": "str", "default": "", "help": "where"},
        "TRUENO_ACME_LANES": {"type": "count", "help": "how many"},
    },
}
LEAST = {"name": "acme", "api": [1, 1], "kind": "cpu", "factory": "acme:make"}


SCHEMA = Draft202012Validator(keys.schema())
"""The schema in the hands of who knows nothing of our own check."""


def refusal(data, **given):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        parse(data, "acme/backend.toml", **given)
    message = str(raised.value)
    assert message.startswith("acme/backend.toml: ")
    return message.removeprefix("acme/backend.toml: ")


def test_every_key_arrives():
    found = parse(GOOD, "x", "acme", "acme-trueno", "1.2", "/x/backend.toml")
    assert (found.name, found.api, found.kind, found.tier, found.factory) == (
        "acme", (1, 1), "gpu", 30, "acme_trueno.backend:Backend",
    )  # fmt: skip
    assert found.opt_in and found.atomic and found.foreign
    assert found.arrays == ("acme.arrays:Array", "acme:Other.Inner")
    assert found.install == "pip install acme-trueno[all]"
    assert found.require == GOOD["require"]
    assert (found.distribution, found.version, found.path) == ("acme-trueno", "1.2", "/x/backend.toml")
    assert {name: s.default for name, s in found.settings.items()} == {
        "TRUENO_ACME_DEVICE": -1,
        "TRUENO_ACME_FAST": True,
        "TRUENO_ACME_WAIT": 3.0,
        "TRUENO_ACME_ONLY": ("a", "b"),
        "TRUENO_ACME_PATH": "",
        "TRUENO_ACME_LANES": None,
    }


def test_what_is_left_out_has_a_default():
    found = parse(LEAST, "x")
    assert (found.tier, found.opt_in, found.atomic, found.unavailable, found.install) == (0, False, False, "", "")
    assert found.arrays == ("numpy:ndarray",) and not found.foreign
    assert found.require == {} and found.settings == {}
    assert parse(LEAST, "x", distribution="acme").install == "pip install --upgrade acme"
    found.require["modules"] = ["changed"]
    assert parse(LEAST, "x").require == {}
    assert set(keys.TABLE["properties"]) <= set(found.__slots__)


def test_settings_of_a_plugin_can_be_declared():
    settings = Settings({"TRUENO_ACME_ONLY": "X, y", "TRUENO_ACME_WAIT": "1.5"})
    for name, setting in parse(GOOD, "x").settings.items():
        settings.declare(name, setting)
    assert settings.get("TRUENO_ACME_ONLY") == ("x", "y")
    assert settings.get("TRUENO_ACME_WAIT") == 1.5
    assert settings.get("TRUENO_ACME_DEVICE") == -1


@pytest.mark.parametrize(
    "change, said",
    [
        ({"nmae": "x"}, "unknown key 'nmae'; known: name api kind tier"),
        ({"zzz": "x"}, "unknown key 'zzz'; known: name api"),
        ({"name": "Acme"}, "name is 'Acme'; it must be lower-case letters, digits and _, the first a letter"),
        ({"name": "1a"}, "name is '1a'"),
        ({"name": "acme\n"}, r"name is 'acme\n'"),
        ({"name": 3}, "name is 3"),
        ({"api": [2, 1]}, "api is [2, 1]; it must be [lowest, highest]"),
        ({"api": 1}, "api is 1; it must be [lowest, highest]"),
        ({"api": [1]}, "api is [1]; it must be [lowest, highest]"),
        ({"api": [0, 1]}, "api[0] is 0; it must be a whole number, 1 or more"),
        ({"api": [1, True]}, "api[1] is True; it must be a whole number, 1 or more"),
        ({"kind": "cup"}, "kind is 'cup'; it must be one of cpu gpu; did you mean \"cpu\"?"),
        ({"kind": ["cpu"]}, "kind is ['cpu']; it must be one of cpu gpu"),
        ({"tier": "high"}, "tier is 'high'; it must be a whole number, 0 or more"),
        ({"tier": -1}, "tier is -1"),
        ({"tier": 1.0}, "tier is 1.0"),
        ({"opt_in": "yes"}, "opt_in is 'yes'; it must be true or false"),
        ({"atomic": 1}, "atomic is 1; it must be true or false"),
        ({"factory": "acme.make"}, "factory is 'acme.make'; it must be like 'package.module:Class'"),
        ({"factory": "acme:make()"}, "factory is 'acme:make()'"),
        ({"arrays": "numpy:ndarray"}, "arrays is 'numpy:ndarray'; it must be a list of types like 'numpy:ndarray'"),
        ({"arrays": ["ndarray"]}, "arrays[0] is 'ndarray'; it must be like 'numpy:ndarray'"),
        ({"install": " "}, "install is ' '; it must be a text that is not empty"),
        ({"require": []}, "require is []; it must be a table"),
        ({"require": {"module": []}}, "unknown key 'require.module'; known: modules linux"),
        ({"require": {"modules": ["a-b"]}}, "require.modules[0] is 'a-b'; it must be the name of a module"),
        (
            {"require": {"linux": {"any_path": []}}},
            "require.linux.any_path is []; it must be a list of paths, one or m",
        ),
        ({"require": {"macos": {}}}, "unknown key 'require.macos'"),
        ({"settings": {"ACME": {}}}, "unknown key 'settings.ACME'; it must be a table of variables named TRUENO_…"),
        ({"settings": {"TRUENO_": {}}}, "unknown key 'settings.TRUENO_'"),
        ({"settings": {"TRUENO_X": {"type": "int"}}}, "settings.TRUENO_X.help is missing"),
        ({"settings": {"TRUENO_X": {"help": "x"}}}, "settings.TRUENO_X.type is missing"),
        (
            {"settings": {"TRUENO_X": {"type": "integer", "help": "x"}}},
            "settings.TRUENO_X.type is 'integer'; it must be one of bool int count str names seconds",
        ),
        (
            {"settings": {"TRUENO_X": {"type": "int", "default": "3", "help": "x"}}},
            "settings.TRUENO_X.default is '3'; it must be a whole number",
        ),
        ({"settings": {"TRUENO_X": {"type": "seconds", "default": 0, "help": "x"}}}, "settings.TRUENO_X.default is 0"),
        (
            {"settings": {"TRUENO_BACKEND": {"type": "str", "help": "x"}}},
            "settings.TRUENO_BACKEND is a variable of trueno's own; it must have another name",
        ),
        ({"install": "x" * 99 + "\n" * 0, "tier": "y" * 99}, f"tier is '{'y' * 56}...; it must be"),
    ],
)
def test_a_refusal_says_key_value_and_what_is_allowed(change, said):
    assert refusal(LEAST | change).startswith(said)


@pytest.mark.parametrize("key", ["name", "api", "kind"])
def test_a_required_key(key):
    assert refusal({k: v for k, v in LEAST.items() if k != key}) == f"{key} is missing"


def test_either_a_factory_or_a_reason():
    least = {k: v for k, v in LEAST.items() if k != "factory"}
    assert refusal(least) == "factory or unavailable is missing"
    assert parse(least | {"unavailable": "not built yet"}, "x").unmet() == ("not_built", "not built yet")


def test_the_name_is_the_entry_points():
    assert refusal(LEAST, name="other") == "name is 'acme', but the entry point is 'other'"
    assert parse(LEAST, "x").name == "acme"


@pytest.mark.parametrize("api, older", [([2, 3], "trueno"), ([7, 7], "trueno")])
def test_a_newer_plugin_asks_for_a_newer_core(api, older, monkeypatch):
    code, reason = parse(GOOD | {"api": api}, "x", distribution="acme-trueno").unmet()
    assert code == "api_mismatch"
    assert reason.endswith("and this trueno implements 1. Install: pip install --upgrade trueno")
    assert f"version{'s' if api == [2, 3] else ''} {api[0]}" in reason


def test_an_older_plugin_asks_for_a_newer_plugin(monkeypatch):
    monkeypatch.setattr(manifest, "API", 3)
    code, reason = parse(GOOD | {"api": [1, 2]}, "x", distribution="acme-trueno").unmet()
    assert code == "api_mismatch"
    assert reason == (
        "it implements versions 1 to 2 of the backend protocol, and this trueno implements 3. "
        "Install: pip install --upgrade acme-trueno"
    )


def test_a_manifest_for_another_api_may_hold_what_is_not_known_yet():
    later = LEAST | {"api": [2, 2], "kind": "npu", "factory": {"lazy": "acme:make"}, "flavour": "sweet"}
    found = parse(later, "x")
    assert found.unmet()[0] == "api_mismatch" and found.factory == ""
    assert refusal(later | {"name": "A"}).startswith("name is 'A'")


def test_a_key_like_a_known_one_names_it_last():
    assert refusal(LEAST | {"nmae": "x"}).endswith('install unavailable require settings; did you mean "name"?')


@pytest.mark.parametrize("text", ["builtins:object", "builtins:list", "typing:Any", "collections.abc:Sequence"])
def test_types_of_everybody_are_nobodys(text):
    said = refusal(LEAST | {"arrays": ["numpy:ndarray", text]})
    assert said == f"arrays[1] is {text!r}, which is not a backend's own; it must be a type that this backend brings"


def test_texts_are_cleaned_of_what_a_terminal_obeys():
    texts = {"install": "pip \x1b[2J install\nacme", "unavailable": "not\x07 yet\u202e\r\nbuilt"}
    settings = {"TRUENO_ACME_A": {"type": "int", "help": "a\x1b]0;b\x07\nnumber"}}
    found = parse(LEAST | texts | {"settings": settings}, "x")
    assert (found.install, found.unavailable) == ("pip [2J install acme", "not yet built")
    assert found.settings["TRUENO_ACME_A"].help == "a ]0;b number"
    assert "install is '\\x07'; it must be a text" in refusal(LEAST | {"install": "\x07"})


def test_a_file_that_is_no_toml_names_itself(tmp_path):
    path = tmp_path / "acme.toml"
    path.write_text("name = \n")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))} cannot be read: Invalid value \(at line 1"):
        manifest.load(str(path))
    with pytest.raises(ValueError, match=r"gone\.toml cannot be read: No such file"):
        manifest.load(str(tmp_path / "gone.toml"))


def test_a_manifest_nested_too_deep(tmp_path):
    path = tmp_path / "acme.toml"
    path.write_text("a" + ".a" * 4000 + " = 1\n")
    with pytest.raises(ValueError, match=r"acme\.toml is nested more than 16 deep"):
        manifest.load(str(path))


def test_a_manifest_has_a_largest_size(tmp_path):
    path = tmp_path / "acme.toml"
    path.write_bytes(b"x = 1" + b"\n" * (keys.LARGEST - 5))
    assert manifest.load(str(path)) == {"x": 1}
    path.write_bytes(b"x = 1" + b"\n" * (keys.LARGEST - 4))
    said = f"{path} cannot be read: it has {keys.LARGEST + 1} bytes; a manifest has at most {keys.LARGEST}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        manifest.load(str(path))
    assert f"at most {keys.LARGEST} bytes" in manifest.schema()["description"]
    assert all(path.stat().st_size < keys.LARGEST / 4 for path in SHIPPED)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no file without an end here")
def test_a_file_without_an_end_is_not_read_to_it():
    with pytest.raises(ValueError, match=f"it has {keys.LARGEST + 1} bytes"):
        manifest.load("/dev/zero")


@pytest.mark.parametrize("error", [RecursionError(), ValueError("odd"), KeyError("odd"), IndexError("odd")])
def test_whatever_the_parser_raises_is_a_manifest_that_cannot_be_read(tmp_path, monkeypatch, error):
    def fails(*_):
        raise error

    (tmp_path / "acme.toml").write_text("x = 1\n")
    monkeypatch.setattr(tomllib, "loads", fails)
    with pytest.raises(ValueError, match=r"acme\.toml cannot be read: .*(odd|nested too deeply)"):
        manifest.load(str(tmp_path / "acme.toml"))


def test_missing_module():
    found = parse(LEAST | {"install": "get it", "require": {"modules": ["json", "no_such_module.inner"]}}, "x")
    assert found.unmet() == ("missing", "the module no_such_module.inner is not installed. Install: get it")


def test_a_missing_module_is_named_for_pip_only_where_it_is_required(tmp_path, monkeypatch):
    needs = LEAST | {"require": {"modules": ["no_such_module"]}}
    said = "the module no_such_module is not installed"
    assert parse(needs, "x", distribution="no-such-acme").unmet() == ("missing", said)
    for requirement, remedy in (
        ("No-Such-Module>=2 ; extra == 'a'", ". Install: pip install no_such_module"),
        ("b", ""),
    ):
        info = tmp_path / "no_such_acme-1.0.dist-info"
        info.mkdir(exist_ok=True)
        head = "Metadata-Version: 2.1\nName: no-such-acme\nVersion: 1.0\n"
        (info / "METADATA").write_text(f"{head}Requires-Dist: {requirement}\n")
        monkeypatch.syspath_prepend(tmp_path)
        assert parse(needs, "x", distribution="no-such-acme").unmet() == ("missing", said + remedy)


def test_modules_are_found_and_not_imported(tmp_path, monkeypatch):
    (tmp_path / "explosive_module").mkdir()
    (tmp_path / "explosive_module" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert parse(LEAST | {"require": {"modules": ["explosive_module.inner"]}}, "x").unmet() is None
    assert "explosive_module" not in sys.modules


def test_a_finder_that_raises_is_no_crash(monkeypatch):
    class Finder:
        @staticmethod
        def find_spec(*_):
            raise RuntimeError("a broken finder")

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    found = parse(LEAST | {"require": {"modules": ["no_such_module"]}}, "x")
    assert found.unmet()[0] == "missing"
    with pytest.raises(ValueError, match="package no_such cannot be looked up: RuntimeError: a broken finder"):
        read("acme", "no_such:backend.toml")


def test_any_path_of_this_platform(tmp_path, monkeypatch):
    monkeypatch.setenv("TRUENO_TEST_PLACE", str(tmp_path))
    require = {sys.platform: {"any_path": ["/no/such/device", "${TRUENO_TEST_PLACE}/device"]}}
    found = parse(LEAST | {"require": require, "install": "get it"}, "x")
    assert found.unmet() == (
        "no_device",
        "no device or driver is visible: /no/such/device, ${TRUENO_TEST_PLACE}/device missing",
    )
    (tmp_path / "device").mkdir()
    assert found.unmet() is None
    other = "win32" if sys.platform != "win32" else "linux"
    assert parse(LEAST | {"require": {other: {"any_path": ["/no/such/device"]}}}, "x").unmet() is None


def test_modules_of_this_platform_take_the_place_of_the_others():
    elsewhere = "win32" if sys.platform != "win32" else "linux"
    require = {"modules": ["no_such_module"], sys.platform: {"modules": ["json"]}}
    assert parse(LEAST | {"require": require}, "x").unmet() is None
    require = {"modules": ["json"], elsewhere: {"modules": ["no_such_module"]}}
    assert parse(LEAST | {"require": require}, "x").unmet() is None
    require = {"modules": ["json"], sys.platform: {"modules": ["no_such_module"]}}
    assert parse(LEAST | {"require": require}, "x").unmet()[0] == "missing"


@pytest.mark.parametrize(
    "value",
    [
        "", "acme", "acme.inner:backend.toml", "acme:", ":backend.toml", "acme:../x.toml", "acme:a/b.toml",
        "acme:a\\b.toml", "acme:..", "acme:.toml", "a-b:backend.toml", "acme:backend.toml [extra]",
    ],
)  # fmt: skip
def test_values_that_name_no_file_of_a_package(value):
    with pytest.raises(ValueError, match=re.escape(f"value is {value!r}; it must be like 'my_package:backend.toml'")):
        read("acme", value)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that must not be imported, in which a manifest can be written."""
    home = tmp_path / "a" / "manifest_test_acme"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path / "a")
    return home


def test_the_file_is_found_without_importing(package):
    (package / "backend.toml").write_text("""
        name = "acme"
        api = [1, 1]
        kind = "cpu"
        factory = "manifest_test_acme.backend:Backend"
    """)
    found = read("acme", "manifest_test_acme:backend.toml", "acme-trueno", "1.0")
    assert found.path == str(package / "backend.toml") and found.distribution == "acme-trueno"
    assert "manifest_test_acme" not in sys.modules


def test_a_namespace_package_has_several_folders(tmp_path, monkeypatch):
    for part in "ab":
        (tmp_path / part / "manifest_test_spaces").mkdir(parents=True)
        monkeypatch.syspath_prepend(tmp_path / part)
    (tmp_path / "a" / "manifest_test_spaces" / "backend.toml").write_text("")
    assert manifest.locate("manifest_test_spaces:backend.toml").startswith(str(tmp_path / "a"))


@pytest.mark.parametrize(
    "text, said",
    [
        (None, "the package manifest_test_acme has no file backend.toml; it must be named as package data"),
        (b"name = ", "backend.toml cannot be read: Invalid value"),
        (b'name = "\xff"', "backend.toml cannot be read: 'utf-8' codec"),
        (b"a = " + b"[" * 100_000, "backend.toml cannot be read: "),
        (b"", "manifest_test_acme/backend.toml: name is missing"),
    ],
)
def test_a_file_that_is_no_manifest(package, text, said):
    if text is not None:
        (package / "backend.toml").write_bytes(text)
    with pytest.raises(ValueError, match=re.escape(said)):
        read("acme", "manifest_test_acme:backend.toml")


def test_a_package_that_is_not_there():
    with pytest.raises(ValueError, match="the package no_such_package is not found"):
        read("acme", "no_such_package:backend.toml")
    with pytest.raises(ValueError, match="the package colorsys is not found"):  # a module, which holds no file
        read("acme", "colorsys:backend.toml")


def test_the_schema_is_fresh():
    text = Path(manifest.SCHEMA).read_text("utf-8")
    assert text == json.dumps(keys.schema(), indent=2) + "\n", "stale: run `make generate`"
    assert '"like"' not in text
    Draft202012Validator.check_schema(json.loads(text))


def test_each_key_says_what_it_is():
    for key, shape in keys.schema()["properties"].items():
        assert shape["description"], key


def test_variables_have_the_types_of_the_parsers():
    assert set(keys.DEFAULTS) == set(TYPES)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_every_shipped_manifest(path):
    data = tomllib.loads(path.read_text("utf-8"))
    assert SCHEMA.is_valid(data)
    found = parse(data, path.name)
    assert found.atomic == (found.name != "wgpu")
    assert found.unmet() is None or found.unmet()[0] in ("no_device", "missing")


def test_they_are_all_there():
    assert {"trueno_scalar", "trueno_simd", "trueno_wgpu", "trueno_cuda"} <= {path.parent.name for path in SHIPPED}


WRONG = [
    None,
    True,
    0,
    1,
    -1,
    2.5,
    "",
    " ",
    "x",
    "a:b",
    "cpu",
    [],
    [1],
    [1, 1],
    ["a"],
    ["a:b"],
    {},
    {"x": 1},
    {"type": 1},
]


def mutated(random, value):
    """A manifest with one change somewhere: a value replaced, a key left out, added or misspelt."""
    value = json.loads(json.dumps(value))
    at = value
    while True:
        key = random.choice(list(at)) if isinstance(at, dict) else random.randrange(len(at))
        if isinstance(at[key], dict | list) and at[key] and random.random() < 0.7:
            at = at[key]
            continue
        how = random.randrange(4) if isinstance(at, dict) else 0
        if how == 0:
            at[key] = random.choice(WRONG)
        elif how == 1:
            del at[key]
        elif how == 2:
            at[random.choice(["new", "TRUENO_NEW", "default", "linux", "modules", "help"])] = random.choice(WRONG)
        else:
            at[key + random.choice("sX_")] = at.pop(key)
        return value


@pytest.mark.parametrize("start", [GOOD, LEAST], ids=["full", "least"])
def test_the_check_and_the_schema_decide_alike(start):
    seed = fresh_seed()
    print("seed", seed)
    drawn = random.Random(seed)
    refused = 0
    for _ in range(3000):
        data = mutated(drawn, start)
        said = keys.refuse(data)
        assert SCHEMA.is_valid(data) == (said == ""), (data, said)
        refused += bool(said)
        if said:  # and the whole never raises anything but a sentence
            with pytest.raises(ValueError, match=r"^x: "):
                parse(data, "x")
        elif data["api"][0] <= data["api"][1]:
            assert parse(data, "x").name == data["name"]
    assert 300 < refused < 3000
