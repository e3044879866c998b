from __future__ import annotations

import hashlib
import json
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

from qunlearn.errors import UserError
from qunlearn.store.cache import memory_mapped

ARRAY = np.arange(60, dtype=np.uint8).reshape(5, 3, 4)


class Rows:
    """Blocks of the array, and how often they were read."""

    def __init__(self):
        self.read = 0

    def __iter__(self):
        self.read += 1
        yield ARRAY[:2]
        yield ARRAY[2:]


def get(folder, rows, key="k", name="set"):
    cached = memory_mapped(folder, name, key, ARRAY.shape, rows, lambda: {"mean": 3})
    assert cached.digest == hashlib.blake2b(ARRAY.tobytes(), digest_size=32).hexdigest()
    return cached.array, cached.notes


def test_is_written_once_and_mapped(tmp_path):
    rows, folder = Rows(), tmp_path / "a" / "b"
    for _ in range(3):
        array, notes = get(folder, rows)
        assert isinstance(array, np.memmap)
        assert np.array_equal(array, ARRAY)
        assert notes == {"mean": 3}
    assert rows.read == 1
    array[0] = 0  # private to this process
    assert np.array_equal(get(folder, rows)[0], ARRAY)
    assert sorted(path.name for path in folder.iterdir()) == ["set.k.json", "set.k.npy"]


def test_another_key_replaces_and_other_names_stay(tmp_path):
    rows = Rows()
    get(tmp_path, rows)
    get(tmp_path, rows, name="set2")
    get(tmp_path, rows, key="l")
    assert rows.read == 3
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == ["set.l.npy", "set2.k.npy"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda npy, mark: npy.write_bytes(npy.read_bytes()[:-1]),
        lambda npy, mark: npy.write_bytes(b""),
        lambda npy, mark: npy.write_bytes(b"rubbish" * 30),
        lambda npy, mark: npy.unlink(),
        lambda npy, mark: mark.unlink(),
        lambda npy, mark: mark.write_text("{"),
        lambda npy, mark: mark.write_text("[]"),
        lambda npy, mark: np.save(npy, ARRAY[:4]),
        lambda npy, mark: np.save(npy, ARRAY.astype(np.int8)),
    ],
)
def test_damage_is_repaired(tmp_path, harm):
    rows = Rows()
    get(tmp_path, rows)
    harm(tmp_path / "set.k.npy", tmp_path / "set.k.json")
    array, notes = get(tmp_path, rows)
    assert rows.read == 2
    assert np.array_equal(array, ARRAY)
    assert notes == {"mean": 3}
    assert json.loads((tmp_path / "set.k.json").read_text())["notes"] == {"mean": 3}


def test_a_failure_while_reading_leaves_nothing(tmp_path):
    def broken():
        yield ARRAY[:2]
        raise UserError("image 3 is damaged")

    with pytest.raises(UserError, match="image 3"):
        get(tmp_path, broken())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("blocks", [[ARRAY[:2]], [ARRAY, ARRAY], [ARRAY[:, :2]]])
def test_wrong_rows_are_an_error(tmp_path, blocks):
    with pytest.raises(ValueError, match="array"):
        get(tmp_path, blocks)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file.*--cache-dir"):
        get(tmp_path / "file" / "cache", Rows())


def test_a_full_disk_is_refused_before_writing(tmp_path):
    with pytest.raises(UserError, match=r"bytes in .* are free.*--cache-dir"):
        memory_mapped(tmp_path, "set", "k", (1 << 60, 3, 4), Rows(), dict)
    assert list(tmp_path.iterdir()) == []


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_look_into_it(tmp_path):
    """Whatever the umask, and also if an earlier version made it readable."""
    folder = tmp_path / "cache" / "images"
    get(folder, Rows())
    assert mode(folder) == 0o700
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    folder.chmod(0o755)
    get(folder, Rows())
    assert mode(folder) == 0o700


WRITER = """
import sys, time
import hashlib
from pathlib import Path
import numpy as np
from qunlearn.store.cache import memory_mapped

def rows():
    yield np.zeros((1, 4), np.uint8)
    print("writing", flush=True)
    time.sleep(60)

memory_mapped(Path(sys.argv[1]), "other", "key", (2, 4), rows(), dict)
"""


@pytest.fixture
def writer(tmp_path):
    """Another process that is writing to the cache."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.wait()


def test_what_a_killed_writer_left_is_swept_and_what_a_living_one_writes_is_not(tmp_path, writer):
    (under_way,) = tmp_path.glob(".writing-*")
    (tmp_path / "notes.txt").write_text("somebody's")
    get(tmp_path, Rows())
    assert under_way.exists()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert under_way.exists()
    get(tmp_path, Rows(), key="l")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"set.l.npy", "set.l.json", "notes.txt"}
