"""Every kind of hostile entry in every kind of folder, and every command on it.

Whatever a folder holds: nothing outside of it changes, no code in it runs, no command hangs or
takes memory without bound, nothing but text reaches the terminal, every failure is one sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import forked
import numpy as np
import pytest
import quick_study
from conftest import made_once
from PIL import Image

from qunlearn.data import manifest
from qunlearn.export.export import export_run
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.study.compare import compare_run

SECONDS, MEGABYTES = 5.0, 1000.0
"""For how long a command may wait for something, and what memory it may take."""

MODULES = ("torch", "struct", "matplotlib", "json", "random", "signal", "onnxruntime", "PIL")
"""Modules that a command or a process of its would import from the folder, if it could."""

PLACES = {
    "original": ["config.toml", "model.safetensors", "split.json", ".lock"],
    "run": ["metrics.json", "history.jsonl", "predictions.safetensors", "figures", "report.html"],
    "unfinished": ["checkpoint.safetensors", "history.jsonl", ".lock"],
    "comparison": ["cells/ft", "cells/ga/seed0/metrics.json", "table.json", "figures", ".lock"],
    "data": [
        "train/a/0.png",
        "train/a",
        "train",
        "images.npz",
        "model.onnx",
        "ids.json",
        "ids.csv",
    ],
}
"""Where entries are planted in each kind of folder: in place of what is there, or beside it."""

TEXTS = (".toml", ".json", ".jsonl", ".csv")
"""Endings of the files that are parsed as text."""

DEEP = ".".join(["a"] * 30_000)
OVERSIZED = {
    ".toml": f"{DEEP} = 1\n".encode(),
    ".json": b"[" + b"{}," * 20_000_000 + b"{}]",
    ".jsonl": b"{}\n" * 20_000_000,
    ".txt": b"0" * 60_000_000,
}
ESCAPE = "\x1b]0;owned\x07\x1b[31m\u202eevil"


def link(path: Path, outside: Path) -> None:
    """A link to a folder outside that holds an unfinished run, or to a file that is not there."""
    path.symlink_to(outside / ("folder" if not path.suffix else "absent"))


def link_to_file(path: Path, outside: Path) -> None:
    """A link to a file outside."""
    path.symlink_to(outside / "file")


def fifo(path: Path, outside: Path) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(path)


def device(path: Path, outside: Path) -> None:
    """An endless device."""
    path.symlink_to("/dev/zero")


def unix_socket(path: Path, outside: Path) -> None:
    """A socket."""
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path has a limit
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def oversized(path: Path, outside: Path) -> None:
    """Far more than any such file holds."""
    path.write_bytes(OVERSIZED.get(path.suffix, b"\0" * 1_000_000))


def code(path: Path, outside: Path) -> None:
    """Modules, and a file with which matplotlib would run latex, beside what is there."""
    for name in MODULES:
        (path.parent / f"{name}.py").write_text(f"open({str(outside / name)!r}, 'w')\n")
    latex = path.parent / "latex"
    latex.write_text(f"#!/bin/sh\ntouch {outside}/latex\n")
    latex.chmod(0o755)
    (path.parent / "matplotlibrc").write_text("text.usetex: true\nsvg.fonttype: path\n")


def escapes(path: Path, outside: Path) -> None:
    """Text that would move the cursor."""
    path.write_text(f'{{"{ESCAPE}": "{ESCAPE}", "parts": {{"{ESCAPE}": {{}}}}}}')


PLANTS: list[Callable[[Path, Path], None]] = [
    *(link, link_to_file, fifo, device, unix_socket, oversized, escapes, code)
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, run_folder: Path) -> dict[str, Path]:
    """One folder of each kind, and what belongs to them."""
    base = made_once(tmp_path_factory, "folders", lambda base: make_folders(base, run_folder))
    return {kind: base / kind for kind in PLACES}


@pytest.fixture(scope="module")
def run() -> Iterator[forked.Running]:
    """Runs a command in a process of its own."""
    with forked.preloaded() as run:
        yield run


def make_folders(base: Path, run_folder: Path) -> None:
    """Fill a folder with them."""
    shutil.copytree(run_folder, base / "original")
    request = {"run": base / "original", "random": 0.1, "method": "ft", "epochs": 1, "threads": 1}
    forget_run(ForgetConfig.parse(request), base / "run")
    compare_run(quick_study.config(base / "original", seeds=1), base / "comparison")
    shutil.copytree(base / "run", base / "unfinished")
    for name in ("run.json", "checksums.txt", "metrics.json", "predictions.safetensors"):
        (base / "unfinished" / name).unlink()
    data = base / "data"
    for number in range(12):
        place = data / "train" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    labels = np.arange(40) % 2
    np.savez(data / "images.npz", x_train=np.zeros((40, 8, 8), np.uint8), y_train=labels)
    export_run(base / "original", data / "model.onnx")
    names = list(manifest.parse((base / "original" / "split.json").read_text()).train)[:9]
    (data / "ids.json").write_text(json.dumps(names))
    (data / "ids.csv").write_text("id,user\n" + "".join(f"{name},1\n" for name in names))


OPENED = {
    "evaluate": {"metrics.json", "predictions.safetensors"},
    "explain": {"history.jsonl"},
    "audit": {"metrics.json", "history.jsonl", "predictions.safetensors"},
    "forget": {"metrics.json", "history.jsonl", "predictions.safetensors"},
    "train folder": {"train/a/0.png", "train/a", "train"},
    "train npz": {"images.npz"},
    "predict": {"model.onnx", "train/a/0.png", "train/a", "train"},
    "evaluate onnx": {"model.onnx"},
    "ids": {"ids.json"},
    "metadata": {"ids.csv"},
}
"""The places, in a `run` or in `data`, that a command has business with; the others open all.

Each of these is planted by itself. All others are planted at the same time.
"""

COMMANDS = {
    "original": ["evaluate", "describe", "check", "export", "forget", "resume train", "config"],
    "run": ["evaluate", "report", "explain", "check", "audit", "forget"],
    "unfinished": ["resume forget", "check", "report"],
    "comparison": ["report", "check", "resume compare"],
    "data": ["train folder", "train npz", "predict", "evaluate onnx", "ids", "metadata"],
}


TRAIN = ["train", "--model", "cnn", "--epochs", "1", "--threads", "1", "--dataset"]
FORGET = ["forget", "--method", "ft", "--epochs", "1", "--threads", "1", "--skip-probe"]


def words(command: str, folder: Path, new: Path) -> list[str]:
    """The words of a command on the folder; what it writes elsewhere goes to `new`."""
    original = folder.parent / "original"
    return {
        "evaluate": ["evaluate", "."],
        "describe": ["describe", "."],
        "check": ["check", "."],
        "report": ["report", "."],
        "explain": ["explain", "."],
        "audit": ["audit", "bits", ".", "--bits", "2"],
        "export": ["export", ".", "--out", str(new / "model.onnx")],
        "forget": [*FORGET, ".", "--random", "0.1", "--out", str(new / "next")],
        "config": [
            "train",
            "--config",
            "config.toml",
            "--epochs",
            "1",
            "--out",
            str(new / "again"),
        ],
        "resume train": ["train", "--resume", "--out", "."],
        "train folder": [*TRAIN, ".", "--batch-size", "4", "--out", str(new / "run")],
        "train npz": [*TRAIN, "images.npz", "--batch-size", "8", "--out", str(new / "run")],
        "predict": ["predict", "model.onnx", "train/a/0.png"],
        "evaluate onnx": ["evaluate", str(original), "--onnx", "model.onnx"],
        "ids": [*FORGET, str(original), "--ids", "ids.json", "--out", str(new / "run")],
        "metadata": [
            *(*FORGET, str(original), "--metadata", "ids.csv", "--where", "user == 1"),
            *("--out", str(new / "run")),
        ],
        "resume forget": ["forget", "--resume", "--out", "."],
        "resume compare": [
            *("compare", str(original), "--random", "0.1", "--methods", "ft,ga", "--seeds", "1"),
            *("--set", "retrain.epochs=1", "--set", "ft.epochs=1", "--set", "ga.epochs=1"),
            *("--threads", "1", "--out", "."),
        ],
    }[command]


def digest(folder: Path) -> str:
    """Of all names, kinds, modes, times and contents below a folder; links are not followed."""
    made = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        made.update(f"{path.relative_to(folder)} {status.st_mode} {status.st_mtime_ns}".encode())
        if path.is_file() and not path.is_symlink():
            made.update(path.read_bytes())
    return made.hexdigest()


def surroundings(base: Path, folders: dict[str, Path], kind: str) -> tuple[Path, Path]:
    """The folder under attack with its neighbours, and a folder outside that must not change."""
    place, outside = base / "received", base / "outside"
    place.mkdir()
    shutil.copytree(folders["original"], place / "original")
    if kind != "original":
        shutil.copytree(folders[kind], place / kind)
    outside.mkdir()
    (outside / "file").write_text("precious")
    shutil.copytree(folders["unfinished"], outside / "folder")
    (outside / "folder" / "precious").write_text("precious")
    return place / kind, outside


def cases() -> list[tuple[str, Callable[[Path, Path], None]]]:
    return [(kind, plant) for kind in COMMANDS for plant in PLANTS]


def groups(kind: str, places: list[str]) -> dict[tuple[str, ...], list[str]]:
    """Which places are planted together, and the commands that are then given.

    Every command meets a plant in every place: in those that it opens one by one, so that no
    refusal hides another one, and in the others together.
    """
    found: dict[tuple[str, ...], list[str]] = {(name,): [] for name in places}
    for command in COMMANDS[kind]:
        opened = OPENED.get(command) if kind in ("run", "data") else None
        alone = [name for name in places if opened is None or name in opened]
        others = [name for name in places if name not in alone]
        outermost = tuple(n for n in others if not any(n.startswith(f"{o}/") for o in others))
        for group in (*((name,) for name in alone), *([outermost] if others else [])):
            found.setdefault(group, []).append(command)
    return {group: commands for group, commands in found.items() if commands}


@pytest.mark.parametrize("kind", COMMANDS)
def test_every_command_meets_every_plant(kind):
    """Whatever is planted together; within a planted folder nothing else can be planted."""
    met = [
        (command, name)
        for g, c in groups(kind, PLACES[kind]).items()
        for command in c
        for name in g
    ]
    for command in COMMANDS[kind]:
        for place in PLACES[kind]:
            assert any(c == command and (place + "/").startswith(n + "/") for c, n in met)


@pytest.mark.parametrize(("kind", "plant"), cases(), ids=lambda v: getattr(v, "__name__", v))
def test_nothing_leaves_the_folder(tmp_path, folders, run, kind, plant):
    places = PLACES[kind]
    if plant in (oversized, escapes):
        places = [name for name in places if name.endswith(TEXTS)]
    if plant is code:
        places = ["beside"]
        run = forked.run  # what is loaded already would not be imported from the folder
    for number, (names, commands) in enumerate(groups(kind, places).items()):
        base = tmp_path / str(number)
        base.mkdir()
        folder, outside = surroundings(base, folders, kind)
        for name in names:
            put(folder / name, outside, plant)
        before = digest(outside)
        given = []
        for command in commands:
            new = base / f"new {command}"
            new.mkdir()
            given.append(words(command, folder, new))
        outcome = run(given, folder, base / "log", SECONDS)
        case = (kind, plant.__name__, names, commands, outcome)
        assert len(outcome.codes) == len(commands), case
        assert set(outcome.codes) <= {0, 1, 2, 3}, case
        assert outcome.megabytes < MEGABYTES, case
        assert b"Traceback" not in outcome.printed, case
        assert not any(byte in outcome.printed for byte in (b"\x1b]", b"\x1b[31m")), case
        assert "\u202e".encode() not in outcome.printed, case
        assert digest(outside) == before, case
        shutil.rmtree(base)


def put(path: Path, outside: Path, plant: Callable[[Path, Path], None]) -> None:
    """Plant it, in place of what is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    plant(path, outside)


def test_a_folder_without_hostile_entries_is_fine(tmp_path, folders, run):
    """The other tests can fail: on untouched folders, every command does its work."""
    for kind, commands in COMMANDS.items():
        for command in commands:
            base = tmp_path / f"{kind} {command}"
            base.mkdir()
            folder, _ = surroundings(base, folders, kind)
            outcome = run([words(command, folder, base)], folder, base / "log", SECONDS)
            expected = {"explain": (2,), "check": (0, 1, 2), "report": (0, 2)}.get(command, (0, 3))
            assert set(outcome.codes) <= set(expected), (kind, command, outcome)
            assert outcome.codes, (kind, command, outcome)
