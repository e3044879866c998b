from __future__ import annotations

import contextlib
import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qunlearn.data import read_ids
from qunlearn.errors import UserError


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "id,why\ntrain/3,x\ntrain/14,\n"),
        ("a.csv", "id,why\ntrain/3\ntrain/14,x\n"),  # spreadsheets leave out empty last cells
        ("a.csv", "\ufeffid\ntrain/3\n\ntrain/14\n"),
        ("a.csv", "train/3\r\ntrain/14\r\n"),
        ("a.csv", "id;why\r\ntrain/3;1,5\r\n;\r\n  train/14  ;x\r\n"),
        ("a.csv", 'sep=;\r\n"ID";"why"\r\n"train/3";"a, b"\r\n"train/14";\r\n'),
        ("a.csv", 'why|id\n"a | b"| "train/3"\nc|train/14'),
        ("a.tsv", "why\tid\na b\ttrain/3\n\ttrain/14\n"),
        ("a.txt", "why\tid\r\na b\ttrain/3\r\n\ttrain/14\r\n"),
        ("a.CSV", 'why,id\n"a, b", train/3\n,train/14\n'),
        ("a.json", '["train/3", "train/14"]'),
        ("a.json", '{"ids": ["train/3", "train/14"], "who": "x"}'),
        ("a.txt", "train/3\n  train/14  \n\n"),
        ("a.txt", "id\ntrain/3\ntrain/14\n"),
        ("a", "train/3\r\ntrain/14"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_forms(tmp_path, name, text, encoding):
    (tmp_path / name).write_bytes(text.removeprefix("\ufeff").encode(encoding))
    assert read_ids(tmp_path / name) == ["train/3", "train/14"]


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
@pytest.mark.parametrize(
    "text", ["sample,id\na,b\nc,d\n", "id;Sample\r\nb;a\r\nd;c\r\n", "sample\na\nc\n"]
)
def test_another_column(tmp_path, name, text):
    (tmp_path / name).write_text(text, newline="")
    assert read_ids(tmp_path / name, column="sample") == ["a", "c"]
    with pytest.raises(UserError, match=r"but no 'user'; .*--column"):
        read_ids(tmp_path / name, column="user")


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.json"])
def test_repeated_ids_are_for_the_caller_to_count(tmp_path, name):
    (tmp_path / name).write_text('["b", "a", "b"]' if name == "a.json" else "b\na\nb\n")
    assert read_ids(tmp_path / name) == ["b", "a", "b"]


IDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1)
SPACED = st.lists(IDS, min_size=1, max_size=3).map(" ".join)


@st.composite
def dialects(draw):
    """Whatever csv writes that a program reading CSV can take back."""

    class Dialect(csv.Dialect):
        delimiter = draw(st.sampled_from(",;\t|"))
        quotechar, doublequote = '"', True
        quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
        lineterminator = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        skipinitialspace = draw(st.booleans())

    return draw(st.sampled_from(["excel", "excel-tab", "unix", Dialect]))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(SPACED, min_size=1),
    dialects(),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.sampled_from(["id", "sample", "Nummer; Bild", "a, b"]),
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"])), max_size=2),
)
def test_what_csv_writes_is_read_again(ids, dialect, encoding, column, notes):
    """A list in the first, middle or last column of a table in any dialect."""
    notes = [note for note in notes if note.strip()]
    file = io.StringIO(newline="")
    table = csv.writer(file, dialect)
    table.writerow([*(f"note {k}" for k in range(len(notes))), column])
    table.writerows([*notes, name] for name in ids)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.csv"
        path.write_bytes(file.getvalue().encode(encoding))
        assert read_ids(path, None if column == "id" else column) == ids


@settings(max_examples=200, deadline=None)
@given(st.lists(SPACED, min_size=1), dialects())
def test_a_list_without_a_header_is_read_again_or_asked_about(ids, dialect):
    file = io.StringIO(newline="")
    csv.writer(file, dialect).writerows([name] for name in ids)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ids.csv"
        path.write_bytes(file.getvalue().encode())
        if any(all(mark in name for name in ids) for mark in ",;|"):  # or two cells in each row
            with contextlib.suppress(UserError):
                assert read_ids(path) == ids
        else:
            assert read_ids(path) == ids


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"sample,why\na,b\n", "has the columns 'sample', 'why' but no 'id'; .*--column"),
        ("a.csv", b"why,id\na\n", "Row 2 .* has no id"),
        ("a.csv", b"why,id\na,\n", "Row 2 .* has no id"),
        ("a.csv", b"id,why\na,b,c\n", "more cells than the header"),
        ("a.csv", b"id;x,id\na;b,c\n", "several delimiters"),
        ("a.csv", b'id,x\n"a', "not valid CSV"),
        ("a.csv", b"id" + b"," * 4_000_001, "more than 4,000,000 cells"),
        ("a.csv", b"", "lists no ids"),
        ("a.csv", b"id\n", "lists no ids"),
        ("a.txt", b"\n \n", "lists no ids"),
        ("a.txt", b"\xff\xfe\x00", "is not valid text.*save it as UTF-8"),
        ("a.csv", "id\nä\n".encode("cp1252"), "is not valid CSV.*save it as UTF-8"),
        ("a.json", b"{}", "must contain a list"),
        ("a.json", b'"train/3"', "must contain a list"),
        ("a.json", b"[3]", "id 3 in .* is not a string"),
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
    with pytest.raises(UserError, match="leave out --column"):
        read_ids(tmp_path / "none.json", column="id")
