"""A new virtual environment that sees the packages of the running one: what is installed into it is its own."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path


class FreshEnvironment:
    """`pip` installs into it without a network; `python` runs its interpreter, with no setting but the cache."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=300)
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.interpreter = folder / scripts / Path(sys.executable).name
        packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
        seen = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
        lines = [f"import site; site.addsitedir({path!r})" for path in seen]
        (packages / "running.pth").write_text("\n".join(lines), "utf-8")
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("TRUENO_", "PYTHON", "FORCE_CPU"))}
        cache = os.environ.get("TRUENO_CACHE_DIR")
        self.environment = plain | ({"TRUENO_CACHE_DIR": cache} if cache else {})

    def pip(self, *arguments: str) -> None:
        """`pip install` a folder as it stands, editable with `-e`."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.interpreter)]
        command += ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    def python(self, *arguments: str, folder: Path, timeout: float = 1200) -> "subprocess.CompletedProcess[str]":
        """Run its interpreter in `folder`."""
        command = [str(self.interpreter), "-P", *arguments]
        return subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=timeout
        )
