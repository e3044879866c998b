from __future__ import annotations

import pytest

from qunlearn.data import read_ids
from qunlearn.errors import UserError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "id,why\ntrain/3,x\ntrain/14,\n"),
        ("a.csv", "\ufeffid\ntrain/3\n\ntrain/14\n"),
        ("a.csv", "train/3\r\ntrain/14\r\n"),
        ("a.CSV", 'why,id\n"a, b", train/3\n,train/14\n'),
        ("a.json", '["train/3", "train/14"]'),
        ("a.json", '{"ids": ["train/3", "train/14"], "who": "x"}'),
        ("a.txt", "train/3\n  train/14  \n\n"),
        ("a", "train/3\r\ntrain/14"),
    ],
)
def test_forms(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode())
    assert read_ids(tmp_path / name) == ["train/3", "train/14"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"sample,why\na,b\n", "none is called 'id'"),
        ("a.csv", b"id,why\na\n", "has no id"),
        ("a.csv", b"why,id\na,\n", "has no id"),
        ("a.csv", b"", "lists no ids"),
        ("a.csv", b"id\n", "lists no ids"),
        ("a.txt", b"\n \n", "lists no ids"),
        ("a.txt", b"a\nb\na\n", "'a' is twice"),
        ("a.txt", b"\xff\xfe\x00", "is not valid text"),
        ("a.json", b"{}", "must hold a list"),
        ("a.json", b'"train/3"', "must hold a list"),
        ("a.json", b"[3]", "id 3 in .* is not text"),
        ("a.json", b"[", "not valid JSON"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_ids(tmp_path / name)


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        read_ids(tmp_path / "none.csv")
