"""Pins every package that `make demo` and `make test` install.

    python tools/lock.py [--upgrade]

Asks pip's resolver, for each Python and each kind of machine below, what it would install from
PyPI; nothing is installed. Writes constraints.txt, with a marker where Pythons need different
versions, and hashes.txt for `pip install --require-hashes`. What constraints.txt has pinned stays;
with --upgrade everything but torch becomes the newest version that fits.

What torch needs for GPUs on Linux (nvidia-*, cuda-*, triton) is left out: torch names nearly all of
those versions itself, and its builds for CPUs have none of them. Wheels of torch differ from index
to index, so it is pinned without a hash.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
INDEX = "https://pypi.org/simple"
TORCH = "torch==2.13.0"
PYTHONS = ("3.11", "3.12", "3.13")
AT_ONCE = 6  # calls of pip, which mostly wait for the index
GLIBC = (28, 27, 26, 24, 17, 12, 5)
LINUX = {"sys_platform": "linux", "os_name": "posix", "platform_system": "Linux without a GPU"}
MAC = {"sys_platform": "darwin", "os_name": "posix", "platform_system": "Darwin"}
MACHINES: dict[str, tuple[list[str], dict[str, str]]] = {
    "Linux x86_64": (
        [f"manylinux_2_{k}_x86_64" for k in GLIBC] + ["manylinux2014_x86_64", "linux_x86_64"],
        {**LINUX, "platform_machine": "x86_64"},
    ),
    "Linux aarch64": (
        [f"manylinux_2_{k}_aarch64" for k in GLIBC] + ["manylinux2014_aarch64", "linux_aarch64"],
        {**LINUX, "platform_machine": "aarch64"},
    ),
    "macOS arm64": (["macosx_14_0_arm64"], {**MAC, "platform_machine": "arm64"}),
}
# pip evaluates markers for the Python that it runs in; it is told to think of another one.
AS_IF = """
import json, sys
from pip._vendor.packaging import markers
known, other = markers.default_environment(), json.loads(sys.argv.pop(1))
markers.default_environment = lambda: {**known, **other}
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

Found = dict[str, tuple[str, set[str]]]
"""What is installed, by name: the version, and the checksums of its wheels."""


def resolve(wanted: Iterable[str], pinned: str, python: str, machine: str) -> Found:
    """What pip would install for a Python on a machine."""
    tags, markers = MACHINES[machine]
    environment = {**markers, "python_version": python, "python_full_version": f"{python}.0"}
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "pinned.txt"
        kept.write_text(pinned)
        words = ["install", "--isolated", "--quiet", "--dry-run", "--ignore-installed"]
        words += ["--index-url", INDEX, "--only-binary=:all:", "--python-version", python]
        words += [f"--platform={tag}" for tag in tags] + ["--target", f"{folder}/none"]
        words += ["-c", str(kept), "--report", f"{folder}/report.json", *wanted]
        call = [sys.executable, "-c", AS_IF, json.dumps(environment), *words]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"Python {python} on {machine}:\n{done.stderr}")
        report = json.loads(Path(folder, "report.json").read_text())
    return {named(item): (item["metadata"]["version"], sums(item)) for item in report["install"]}


def named(item: Mapping[str, Any]) -> str:
    """A package's name as indexes spell it."""
    return str(item["metadata"]["name"]).lower().replace("_", "-").replace(".", "-")


def sums(item: Mapping[str, Any]) -> set[str]:
    """The checksum of the wheel that would be installed."""
    return {item["download_info"]["archive_info"]["hashes"]["sha256"]}


def resolve_all(wanted: list[str], pinned: str) -> dict[str, Found]:
    """What pip would install for each Python; machines must agree on the versions."""
    found: dict[str, Found] = {python: {} for python in PYTHONS}
    targets = [(python, machine) for python in PYTHONS for machine in MACHINES]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        each = pool.map(lambda target: resolve(wanted, pinned, *target), targets)
        for (python, machine), here in zip(targets, each, strict=True):
            for name, (version, digests) in here.items():
                other, known = found[python].setdefault(name, (version, set()))
                if other != version:
                    raise SystemExit(f"{name} is {other} and, on {machine}, {version}; bound it.")
                known |= digests
            print(f"Python {python}, {machine}: {len(here)} packages", flush=True)
    return found


def lines(found: Mapping[str, Found], hashes: bool) -> Iterable[str]:
    """A line for each version of each package, with a marker if not every Python has it."""
    for name in sorted({name for here in found.values() for name in here}):
        versions: dict[str, list[str]] = {}
        for python in PYTHONS:
            if name in found[python]:
                versions.setdefault(found[python][name][0], []).append(python)
        for version, pythons in versions.items():
            text = f"{name}=={version}{marker(pythons)}"
            if hashes:
                known = set().union(*(found[python][name][1] for python in pythons))
                text += "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(known))
            yield text


def marker(pythons: list[str]) -> str:
    """What says that only these Pythons are meant; they follow one another.

    >>> marker(["3.11"]), marker(["3.12"]), marker(["3.11", "3.12", "3.13"])
    (' ; python_version < "3.12"', ' ; python_version >= "3.12" and python_version < "3.13"', '')
    """
    first, last = PYTHONS.index(pythons[0]), PYTHONS.index(pythons[-1])
    if last - first + 1 != len(pythons):
        raise SystemExit(
            f"Pythons {', '.join(pythons)} need what those between them do not; bound it."
        )
    bounds = [f'python_version >= "{pythons[0]}"'] if first else []
    bounds += [f'python_version < "{PYTHONS[last + 1]}"'] if last + 1 < len(PYTHONS) else []
    return f" ; {' and '.join(bounds)}" if bounds else ""


def main() -> None:
    """Write both files."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, constraints = settings["project"], ROOT / "constraints.txt"
    extras = project["optional-dependencies"]
    runtime = [*project["dependencies"], *settings["build-system"]["requires"], TORCH]
    shipped = [*runtime, *extras["onnx"], *extras["tune"], *extras["certify"]]
    tools = [*extras["dev"], *extras["docs"]]
    upgrade = "--upgrade" in sys.argv[1:]
    pinned = "" if upgrade or not constraints.exists() else constraints.read_text()
    everything = resolve_all([*shipped, *tools], pinned)
    head = "# Made by tools/lock.py, which says what is left out and why. Do not edit.\n"
    text = head + "\n".join(lines(everything, hashes=False)) + "\n"
    constraints.write_text(text)
    used = resolve_all(shipped, text)
    for here in used.values():
        del here["torch"]
    (ROOT / "hashes.txt").write_text(head + "\n".join(lines(used, hashes=True)) + "\n")


if __name__ == "__main__":
    main()
