"""The shape of the house: who may import whom, and who may write."""

import ast
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import qunlearn

ROOT = Path(qunlearn.__file__).parent
ORDER = (
    *("store", "quant", "models", "data", "gradients", "metrics", "training", "methods", "runs"),
    *("export", "audit", "evidence", "study", "report", "cli", "testing"),
)


def imports(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        rooms |= {name.split(".")[1] for name in names if name.startswith("qunlearn.")}
    return rooms & set(ORDER)


def test_a_room_imports_only_from_rooms_above_it():
    for room in ORDER:
        allowed = set(ORDER[: ORDER.index(room) + 1])
        for path in (ROOT / room).rglob("*.py"):
            assert imports(path) <= allowed, path


WRITERS = {
    *("write_text", "write_bytes", "write", "save_file", "mkdir", "makedirs", "touch", "unlink"),
    *("remove", "rename", "renames", "replace", "rmdir", "removedirs", "rmtree", "symlink_to"),
    *("hardlink_to", "symlink", "link", "chmod", "lchmod", "chown", "utime", "truncate", "mkfifo"),
    *("mknod", "copyfile", "copy", "copy2", "copytree", "copyfileobj", "move", "tofile", "savez"),
    *("mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory"),
}
"""Functions of os, shutil, tempfile and numpy, and methods of paths, that change a disk."""

FROM = {"os", "shutil", "tempfile", "Path", "np", "numpy"}
"""Modules whose functions of these names write; elsewhere they are a list's, a string's, ..."""

ON_PATHS = {
    *("write_text", "write_bytes", "mkdir", "touch", "unlink", "rename", "rmdir", "symlink_to"),
    *("hardlink_to", "chmod", "lchmod", "save_file", "savefig", "savetxt", "to_csv"),
    *("JournalFileBackend", "JournalFileOpenLock"),
}
"""Methods that only paths, pictures and tables have, and Optuna's journal, whatever they are of."""

ALLOWED = {
    ("quant/fuse.py", "TemporaryDirectory"),  # the compiler's, which is gone after
    ("quant/fuse.py", "TemporaryFile"),  # what the compiler says, in there
    ("training/devices.py", "TemporaryDirectory"),  # where processes meet, likewise
    ("testing/methods.py", "TemporaryDirectory"),  # a checkpoint, likewise
    ("testing/sources.py", "TemporaryDirectory"),  # a cache, likewise
    ("cli/main.py", "open"),  # the null device
    ("demo.py", "savez"),  # into memory
    ("report/drawing.py", "savefig"),  # likewise
    ("study/tune.py", "JournalFileBackend"),  # at a path that the store has checked
    ("study/tune.py", "JournalFileOpenLock"),  # likewise
}


def written_by(call: ast.Call) -> str | None:
    """The name of what a call writes with, if it writes."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name in ON_PATHS and owner not in ("", "self"):
        return name
    if name in WRITERS and owner.split(".")[-1].split("(")[0] in FROM:
        return name
    # A path's, which takes a path; a string's takes two strings, a dataclass's a dataclass first.
    if name == "replace" and len(call.args) == 1 and not call.keywords and owner != "dataclasses":
        return name
    if name == "open":
        words = [ast.unparse(word) for word in (*call.args, *(k.value for k in call.keywords))]
        modes = [word.strip("'\"") for word in words if word[0] in "'\""]
        flags = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND")
        if any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes):
            return name
        if any(flag in word for flag in flags for word in words):
            return name
    return None


def writes(path: Path) -> set[str]:
    """What a file writes with."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil", "tempfile")
        for alias in node.names
        if alias.name in WRITERS
    }
    handed_on = {  # to map, say, which calls it
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        if node.attr in WRITERS and ast.unparse(node.value).split(".")[-1] in FROM
    }
    return {name for call in calls if (name := written_by(call))} | imported | handed_on


def test_only_the_store_writes():
    for path in ROOT.rglob("*.py"):
        place = str(path.relative_to(ROOT))
        if path.parent.name != "store":
            found = {name for name in writes(path) if (place, name) not in ALLOWED}
            assert not found, (place, found)


@pytest.mark.parametrize(
    "code",
    [
        *("path.unlink()", "(a / b).unlink(missing_ok=True)", "os.unlink(a)", "os.remove(a)"),
        *("path.rename(a)", "os.rename(a, b)", "path.replace(a)", "os.replace(a, b)"),
        *("shutil.rmtree(a)", "path.rmdir()", "os.rmdir(a)", "path.touch()", "path.mkdir()"),
        *("a.symlink_to(b)", "os.symlink(a, b)", "path.chmod(1)", "os.chmod(a, 1)"),
        *("path.write_text(a)", "path.write_bytes(a)", "open(a, 'w')", "path.open('ab')"),
        *("path.open(mode='x')", "open(a, 'r+')", "os.open(a, os.O_WRONLY)"),
        *("os.open(a, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=b)", "from shutil import rmtree"),
        *("tempfile.mkdtemp()", "shutil.copyfile(a, b)", "np.savez(a)", "from os import unlink"),
        *(
            "Path.unlink(a)",
            "map(Path.unlink, a)",
            "pathlib.Path(a).unlink()",
            "[*map(os.remove, a)]",
        ),
        *("self.path.unlink()", "paths[0].unlink()", "exit.callback(shutil.rmtree, a)"),
    ],
)
def test_what_writes_is_seen(tmp_path, code):
    (tmp_path / "a.py").write_text(code)
    assert writes(tmp_path / "a.py")


@pytest.mark.parametrize(
    "code",
    [
        *("name.replace('a', 'b')", "dataclasses.replace(a, b=1)", "replace(a, b=1)", "open(a)"),
        *(
            "path.open('rb')",
            "os.open(a, os.O_RDONLY)",
            "names.remove(a)",
            "a.copy()",
            "Run.open(a)",
        ),
    ],
)
def test_what_does_not_write_is_let_pass(tmp_path, code):
    (tmp_path / "a.py").write_text(code)
    assert not writes(tmp_path / "a.py")


def test_nothing_unpickles():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"torch\.load\(|pickle\.load|allow_pickle=True", text), path


PRINTING = {"cli/output.py", "data/stream.py", "training/progress.py"}
"""What prints: each strips what came from somebody else's file of what commands a terminal."""


def prints(node: ast.AST) -> bool:
    """Whether a piece of code writes to the terminal by itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        to_memory = "file=io.StringIO()" in map(ast.unparse, node.keywords)
        return node.func.id == "print" or (node.func.id == "Console" and not to_memory)
    if not isinstance(node, ast.Attribute):
        return False
    written = ast.unparse(node)
    return written.endswith(
        (".stdout.write", ".stderr.write", ".stdout.buffer", ".stderr.buffer")
    ) or (written in ("typer.echo", "typer.secho", "click.echo", "click.secho", "rich.print"))


def test_one_place_prints():
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(map(prints, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == PRINTING


def test_untyped_dicts_are_few():
    """Results are typed; a plain dict appears at the edge of a file."""
    lines = [line for file in ROOT.rglob("*.py") for line in file.read_text().splitlines()]
    untyped = re.compile(r"(dict|Mapping)\[str, Any\]")
    assert sum(bool(untyped.search(line)) for line in lines) <= 40


def walk() -> list[tuple[str, str]]:
    """The files of a request (docs/project/rooms.md), and what each names first."""
    text = (ROOT.parents[1] / "docs" / "project" / "rooms.md").read_text()
    section = text.partition("## One request, file by file\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)`", section, re.MULTILINE)
    return [(file, name.rpartition(".")[2]) for file, name in steps]


def test_a_request_takes_the_way_that_the_walk_describes(qunlearn, run_folder, tmp_path):
    steps = walk()
    assert 5 < len(steps) <= 10
    assert len({file for file, _ in steps}) == len(steps)
    for file, name in steps:
        kind = "class" if name[0].isupper() else "def"
        assert f"{kind} {name}(" in (ROOT / file).read_text()
    functions = [(str(ROOT / file), name) for file, name in steps if not name[0].isupper()]
    called: dict[tuple[str, str], None] = {}

    def watch(frame: FrameType, event: str, _: object) -> None:
        place = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and place in functions:
            called.setdefault(place)

    words = ["forget", run_folder, "--random", 0.1, "--accept", "--out", tmp_path / "new"]
    sys.setprofile(watch)
    try:
        code, _, _ = qunlearn(*words, "--threads", 1)
    finally:
        sys.setprofile(None)
    assert code == 0
    assert list(called) == functions
