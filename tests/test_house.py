"""The shape of the house: who may import whom, and who may write."""

import ast
import re
from pathlib import Path

import qunlearn

ROOT = Path(qunlearn.__file__).parent
ORDER = (
    *("store", "quant", "models", "data", "gradients", "metrics", "training", "methods"),
    *("export", "audit", "study", "report", "cli"),
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


def test_only_the_store_writes():
    writing = re.compile(
        r"""\.write_(text|bytes)\(|open\([^)]*["'][wax]b?["']|save_file\(|\.mkdir\("""
    )
    for path in ROOT.rglob("*.py"):
        if path.parent.name != "store":
            code = re.sub(r'"""(.|\n)*?"""', "", path.read_text())
            assert not writing.search(code), path


def test_nothing_unpickles():
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"torch\.load\(|pickle\.load|allow_pickle=True", text), path
