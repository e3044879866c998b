"""Names that would command a terminal are refused where they are read."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qunlearn.characters import UNSAFE, UNSAFE_IN_NAMES, check_names, plain
from qunlearn.data import load_dataset, read_ids
from qunlearn.data.arrays import as_image_data
from qunlearn.errors import UserError

BAD = ["a\x1b[2Jb", "a\rb", "a\x07", "\x9b2J", "a\u202eb", "\u2066a", "a\u200fb", "a\x7f", "a\nb"]
IMAGES, LABELS = np.zeros((2, 4, 4), dtype=np.uint8), np.array([0, 1])


def test_what_is_unsafe_is_what_unicode_says() -> None:
    letters = [chr(code) for code in range(0x110000)]
    control = {a for a in letters if unicodedata.category(a) in ("Cc", "Cs", "Zl", "Zp")}
    turning = {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI"}
    directed = {a for a in letters if unicodedata.bidirectional(a) in turning}
    found = {a for a in letters if UNSAFE_IN_NAMES.search(a)}
    assert control | directed <= found
    assert found - control - directed <= {
        a for a in letters if unicodedata.category(a) in ("Cf", "Cn")
    }
    assert {a for a in found if not UNSAFE.search(a)} == {"\n", "\t"}
    for written in ("é", "日本", "שלום", "👩\u200d🔬", "नमस्ते", " "):
        assert plain(written) == written
        check_names([written], "name", "")


@pytest.mark.parametrize("bad", BAD)
def test_ids_and_classes_of_arrays(bad: str) -> None:
    data = (IMAGES, LABELS)
    with pytest.raises(UserError, match=r"The id '.*' has control characters; rename the sample"):
        as_image_data(data, ids=["x", bad])
    with pytest.raises(UserError, match=r"The class name '.*' has control characters"):
        as_image_data(data, classes=["x", bad])
    with pytest.raises(UserError, match=r"The data set's name '.*' has control characters"):
        as_image_data(data, name=bad)


@pytest.mark.parametrize("array", ["id_train", "classes"])
def test_an_npz_file(array: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x_train=IMAGES, y_train=LABELS, **{array: ["a", "\x1b[31mb"]})
    with pytest.raises(UserError) as raised:
        load_dataset(str(path))
    assert "has control characters" in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("name", ["a/1\x1b[2J.png", "\u202ea/1.png"])
def test_a_folder(name: str, tmp_path: Path) -> None:
    for file in (name, "b/1.png", "b/2.png", "b/3.png"):
        path = tmp_path / "train" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGES[0]).save(path)
    with pytest.raises(UserError, match=r"unprintable characters|control characters") as raised:
        load_dataset(str(tmp_path))
    assert not UNSAFE.search(str(raised.value))


@pytest.mark.parametrize("name", ["ids.txt", "ids.csv", "ids.json"])
def test_a_list_of_ids(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text('["train/1\\u001b[2J"]' if name.endswith("json") else "id\ntrain/1\x1b[2J\n")
    with pytest.raises(
        UserError, match=r"'train/1\\x1b\[2J' has control characters; correct the list"
    ):
        read_ids(path)


def test_metadata_may_break_lines_and_no_more(tmp_path: Path) -> None:
    data, path = as_image_data((IMAGES, LABELS)), tmp_path / "m.csv"
    path.write_text('id,note\ntrain/0,"two\nlines"\n')
    assert data.join(path).metadata["note"][0] == "two\nlines"
    path.write_text("id,note\ntrain/0,\x1b]0;title\x07\n")
    with pytest.raises(UserError, match=r"The cell .* has control characters; correct"):
        data.join(path)
    path.write_text("id,no\x1bte\ntrain/0,a\n")
    with pytest.raises(UserError, match=r"The column name .* has control characters"):
        data.join(path)
