"""Checks that what would be released works: `make release-check`.

Builds the sdist, and the wheel from that sdist; checks their metadata; installs the wheel into a
new virtual environment; and runs the demo there, in an empty folder, without the repository. Takes
some minutes and the network. Versions are checked first, which takes neither.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "qunlearn"


def disagreements(root: Path = ROOT) -> list[str]:
    """Where changelog, package and citation have another version; nothing if all agree."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    package = re.search(
        r'__version__ = "(.*?)"', (root / "src" / "qunlearn" / "__init__.py").read_text()
    )
    heading = re.search(r"(?m)^## (\S+)", (root / "CHANGELOG.md").read_text())
    cited = re.search(r"(?m)^version: (\S+)", (root / "CITATION.cff").read_text())
    stated = {
        "src/qunlearn/__init__.py": package[1] if package else "nothing",
        "the first heading of CHANGELOG.md": heading[1] if heading else "nothing",
        "CITATION.cff": cited[1] if cited else "nothing",
    }
    return [
        f"pyproject.toml has version {version}, and {place} has {other}"
        for place, other in stated.items()
        if other != version
    ]


def data_files(package: Path = PACKAGE) -> set[str]:
    """The files of the package that are no Python code, as paths below `qunlearn/`."""
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc", ".so")
    }


def missing_from(wheel: Path) -> list[str]:
    """The files of the package that a wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    code = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    return sorted(name for name in code | data_files() if f"qunlearn/{name}" not in names)


def run(*words: object, cwd: Path = ROOT) -> str:
    """What a command prints; it sees nothing of this repository's environment."""
    print("$", " ".join(map(str, words)), flush=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nrelease-check: failed with exit code {done.returncode}.")
    return done.stdout


def environment(folder: Path, *packages: object) -> Path:
    """A new virtual environment with these packages; the folder of its programs."""
    run(sys.executable, "-m", "venv", folder)
    programs = folder / "bin"
    constraints = ROOT / "constraints.txt"
    run(programs / "python", "-m", "pip", "install", "-q", "-c", constraints, *packages)
    return programs


def main() -> None:
    """Run every check; the first that fails ends it."""
    if wrong := disagreements():
        sys.exit(f"release-check: {'; '.join(wrong)}.")
    with tempfile.TemporaryDirectory(prefix="qunlearn-release-") as name:
        base = Path(name)
        tools = environment(base / "tools", "build", "twine")
        # Without further words, `build` makes the wheel from the sdist: that is complete, then.
        run(tools / "python", "-m", "build", "--outdir", base / "dist", ROOT)
        files = sorted((base / "dist").iterdir())
        run(tools / "python", "-m", "twine", "check", "--strict", *files)
        wheel = next(file for file in files if file.suffix == ".whl")
        if lacks := missing_from(wheel):
            sys.exit(f"release-check: {wheel.name} lacks {', '.join(lacks)}.")
        programs = environment(base / "clean", wheel)
        empty = base / "empty"
        empty.mkdir()
        version = run(programs / "qunlearn", "--version", cwd=empty).split()[-1]
        if version not in wheel.name:
            sys.exit(f"release-check: {wheel.name} says that its version is {version}.")
        demo = json.loads(run(programs / "qunlearn", "demo", "--json", "--out", "demo", cwd=empty))
        page = empty / demo["report"]
        answers = [demo[judged]["word"] for judged in ("verdict", "beside")]
        if answers != ["Yes", "Yes"] or not page.is_file():
            sys.exit(f"release-check: the demo answered {' and '.join(answers)}.")
        sizes = ", ".join(f"{file.name} ({file.stat().st_size / 1024:,.0f} KiB)" for file in files)
        print(f"release-check: {sizes} may be released; the demo answers yes.")


if __name__ == "__main__":
    main()
