"""Files that code is loaded from: whatever others could have written is not taken."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from qunlearn.store.private import load_private, private_folder, save_private


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_saved_is_ours_alone_and_found_again(cache: Path) -> None:
    for mask in (0o000, 0o077):
        before = os.umask(mask)
        try:
            folder = private_folder(f"code{mask}")
            # The folders above are as everything is that the user makes.
            assert folder is None if mask == 0 else folder == cache / "qunlearn" / "code63"
        finally:
            os.umask(before)
        for above in (cache, cache / "qunlearn"):
            above.chmod(0o755)
    folder = private_folder("code")
    assert folder is not None
    assert load_private(folder, "one") is None
    save_private(folder, "one", b"first")
    save_private(folder, "other", b"second")
    path = load_private(folder, "one")
    assert path is not None
    assert path.read_bytes() == b"first"
    assert (mode(folder), mode(path)) == (0o700, 0o600)
    assert len(list(folder.iterdir())) == 2


def opened(path: Path) -> None:
    path.chmod(0o666)


def readable(path: Path) -> None:
    path.chmod(0o640)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def altered(path: Path) -> None:
    path.write_bytes(b"fiRst")


def linked(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def gone(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


@pytest.mark.parametrize("change", [opened, readable, cut_off, altered, linked, gone, a_folder])
def test_a_file_that_may_be_anothers_is_not_taken(
    cache: Path, change: Callable[[Path], None]
) -> None:
    folder = private_folder("code")
    assert folder is not None
    save_private(folder, "one", b"first")
    path = load_private(folder, "one")
    assert path is not None
    change(path)
    assert load_private(folder, "one") is None
    if change is not a_folder:
        save_private(folder, "one", b"first")
        assert load_private(folder, "one") == path


def others_may_write(folder: Path) -> None:
    folder.chmod(0o722)


def group_may_write(folder: Path) -> None:
    folder.chmod(0o770)


def above_is_open(folder: Path) -> None:
    folder.parent.chmod(0o777)


def far_above_is_open(folder: Path) -> None:
    folder.parent.parent.chmod(0o775)


def a_link(folder: Path) -> None:
    folder.rename(folder.parent / "real")
    folder.symlink_to(folder.parent / "real")


def a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_bytes(b"")


@pytest.mark.parametrize(
    "change",
    [others_may_write, group_may_write, above_is_open, far_above_is_open, a_link, a_file],
)
def test_a_folder_that_others_could_write_to_is_not_used(
    cache: Path, change: Callable[[Path], None]
) -> None:
    folder = private_folder("code")
    assert folder is not None
    change(folder)
    assert private_folder("code") is None


def test_a_sticky_folder_above_is_as_good_as_closed(cache: Path) -> None:
    folder = private_folder("code")
    assert folder is not None
    cache.chmod(0o1777)
    assert private_folder("code") == folder


def test_what_belongs_to_another_is_not_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder("code")
    assert folder is not None
    save_private(folder, "one", b"first")
    monkeypatch.setattr(os, "geteuid", lambda: folder.lstat().st_uid + 1)
    assert load_private(folder, "one") is None
    assert private_folder("code") is None


@pytest.mark.parametrize("place", ["cache", "/proc/none", "/dev/null"])
def test_without_a_proper_cache_there_is_none(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    assert private_folder("code") is None
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_no_failure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private_folder("code")
    assert folder is not None

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    save_private(folder, "one", b"first")
    assert list(folder.iterdir()) == []
