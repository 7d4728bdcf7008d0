"""Real wheels, really installed by pip into an environment of its own: what a third party's users do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECTS = (ROOT / "tests" / "fake_device", ROOT / "tests" / "chaos", ROOT / "tests" / "chaos" / "twin")


def pip(python, *arguments):
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_wheels(tmp_path, cache):
    """Build, install, see them with their reasons; uninstall, and they are gone."""
    import shutil
    import site

    pytest.importorskip("setuptools", minversion="77", reason="wheels are built without a network")
    wheels = tmp_path / "wheels"
    for project in PROJECTS:
        source = tmp_path / "source" / project.name
        shutil.copytree(project, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "twin"))
        pip(
            sys.executable, "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", wheels, source
        )  # fmt: skip
    names = sorted(p.name.partition("-")[0] for p in wheels.iterdir())
    assert names == ["trueno_chaos", "trueno_chaos_twin", "trueno_fake"]

    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (bin_,) = [home / b for b in ("bin", "Scripts") if (home / b).is_dir()]
    python = str(bin_ / ("python.exe" if os.name == "nt" else "python"))
    (own,) = set(home.rglob("site-packages"))
    # The environment that runs the tests shows through, with its editable installs: only ours are new.
    (own / "outer.pth").write_text("".join(f"import site; site.addsitedir({p!r})\n" for p in site.getsitepackages()))
    pip(python, "install", "-q", "--no-deps", "--no-index", *wheels.glob("*.whl"))

    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRUENO_") and k != "FORCE_CPU"}
    environment |= {
        "TRUENO_CACHE_DIR": str(cache),
        "TRUENO_AUTOLOAD": "fake,scalar,says_no,bad_key,wrong_api,raises_at_import",
    }

    def doctor():
        done = subprocess.run(
            [python, "-m", "trueno.cli", "doctor", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, {row["name"]: row for row in json.loads(done.stdout)["backends"]}

    code, rows = doctor()
    assert code == 1
    assert rows["fake"]["available"], rows["fake"]["reason"]
    assert Path(rows["fake"]["path"]).is_relative_to(home)
    assert rows["fake"]["distribution"] == "trueno-fake"
    assert "plug one in" in rows["says_no"]["reason"] and "teir" in rows["bad_key"]["reason"]
    assert "trueno-chaos-twin" in rows["scalar"]["reason"]

    pip(python, "uninstall", "-q", "-y", "trueno-chaos-twin")
    _, rows = doctor()
    assert rows["scalar"]["available"]

    pip(python, "uninstall", "-q", "-y", "trueno-chaos", "trueno-fake")
    code, rows = doctor()
    assert code == 0 and set(rows) == {"scalar", "reference"}
