import stat

import pytest

from qunlearn.errors import UserError
from qunlearn.store.files import as_written, read_json, replacing, write_json, write_text


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail_half_way():
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path):
    path, usual = tmp_path / "a", tmp_path / "b"
    write_text(path, "x")
    usual.write_text("x")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_json_round_trip_keeps_every_character(tmp_path):
    value = {"α": [1, 2.5, None, True, "ä\n\u2028"]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


def test_json_refuses_what_no_reader_understands(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[" * 100_000])
def test_malformed_json_is_one_sentence_that_names_the_file(tmp_path, content):
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.json"):
        read_json(tmp_path / "bad.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="no file"):
        read_json(tmp_path / "none.json")


def test_a_file_that_cannot_be_used_may_be_damaged_or_a_bug_of_ours(tmp_path):
    said = r"is invalid \(TypeError: .*this is a bug: please report"
    with pytest.raises(UserError, match=said), as_written(tmp_path / "a"):
        len(3)


@pytest.mark.parametrize(
    "message", ["CUDA out of memory.", "DefaultCPUAllocator: can't allocate memory"]
)
def test_too_little_memory_is_not_blamed_on_the_file(tmp_path, message):
    with pytest.raises(RuntimeError, match="memory"), as_written(tmp_path / "a"):
        raise RuntimeError(message)
