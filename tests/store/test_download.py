from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qunlearn.data.sources import SourceOptions
from qunlearn.data.sources.locate import Archive, Plain, locate
from qunlearn.errors import UserError
from qunlearn.store import download
from qunlearn.store.download import fetch_archive, fetch_file


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut = 0  # bytes that are announced but never sent

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - self.server.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def md5(content):
    return hashlib.md5(content).hexdigest()


def test_a_file_arrives_with_progress(server, tmp_path):
    content = bytes(range(256)) * 9000
    server.files["x.mat"] = content
    seen = []
    target = tmp_path / "a" / "b" / "x.mat"
    fetch_file(server.base + "x.mat", md5(content), target, lambda *at: seen.append(at))
    assert target.read_bytes() == content
    assert list(target.parent.iterdir()) == [target]
    assert seen[-1] == (len(content), len(content))
    assert len(seen) > 1


def test_a_wrong_checksum_keeps_nothing_and_what_was_there(server, tmp_path):
    server.files["x.mat"] = b"evil"
    with pytest.raises(UserError, match=r"x.mat has the checksum .* instead of .* --data-dir"):
        fetch_file(server.base + "x.mat", md5(b"good"), tmp_path / "new" / "x.mat")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.mat").write_bytes(b"old")
    with pytest.raises(UserError, match="checksum"):
        fetch_file(server.base + "x.mat", md5(b"good"), tmp_path / "x.mat")
    assert (tmp_path / "x.mat").read_bytes() == b"old"


def test_other_failures_name_the_address_and_the_remedy(server, tmp_path, monkeypatch):
    target = tmp_path / "x.mat"
    with pytest.raises(UserError, match=r"none.mat returned HTTP 404 .* by hand .*--data-dir"):
        fetch_file(server.base + "none.mat", "0", target)
    server.files["x.mat"] = b"a" * 5000
    server.cut = 100
    with pytest.raises(UserError, match=r"broke off after 4,900 of 5,000|could not be fetched"):
        fetch_file(server.base + "x.mat", md5(b"a" * 5000), target)
    server.cut = 0
    monkeypatch.setattr(download, "LARGEST", 1000)
    with pytest.raises(UserError, match="larger than 1,000 bytes"):
        fetch_file(server.base + "x.mat", md5(b"a" * 5000), target)
    with pytest.raises(UserError, match=r"127.0.0.1:1/x.mat could not be fetched .*--data-dir"):
        fetch_file("http://127.0.0.1:1/x.mat", "0", target)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Nothing can be written in"):
        fetch_file(server.base + "x.mat", "0", tmp_path / "file" / "x.mat")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def tar_of(entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if content is None or isinstance(content, str):
                entry.type = tarfile.SYMTYPE if content else tarfile.DIRTYPE
                entry.linkname = content or ""
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in entries:
            entry = zipfile.ZipInfo(name if content is not None else name + "/")
            if isinstance(content, str):
                entry.external_attr = 0o120777 << 16
            pack.writestr(entry, content or b"", zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


HOSTILE = [
    ("set", None),
    ("set/a.bin", b"a"),
    ("set/sub/b.bin", b"b"),
    ("set/readme.html", b"unwanted"),
    ("set/../../escape.bin", b"evil"),
    ("/etc/set/escape.bin", b"evil"),
    ("other/c.bin", b"other"),
    ("set/link.bin", "/etc/passwd"),
    ("set/../set/d.bin", b"roundabout"),
]


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_only_wanted_regular_files_are_unpacked(server, tmp_path, pack):
    content = pack(HOSTILE)
    server.files["set.pack"] = content
    into = tmp_path / "deep" / "data"
    url = server.base + "set.pack"
    fetch_archive(url, md5(content), into, "set", lambda path: path.endswith(".bin"))
    found = {str(p.relative_to(tmp_path)): p for p in tmp_path.rglob("*") if not p.is_dir()}
    assert set(found) == {"deep/data/set/a.bin", "deep/data/set/sub/b.bin"}
    assert found["deep/data/set/sub/b.bin"].read_bytes() == b"b"
    assert not any(path.is_symlink() for path in found.values())


def test_an_incomplete_folder_is_completed(server, tmp_path):
    content = tar_of([("set/a.bin", b"new"), ("set/sub/b.bin", b"b")])
    server.files["set.tgz"] = content
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.bin").write_bytes(b"old")
    (tmp_path / "set" / "mine.txt").write_bytes(b"mine")
    fetch_archive(server.base + "set.tgz", md5(content), tmp_path, "set", lambda path: True)
    assert (tmp_path / "set" / "a.bin").read_bytes() == b"new"
    assert (tmp_path / "set" / "mine.txt").read_bytes() == b"mine"
    assert (tmp_path / "set" / "sub" / "b.bin").read_bytes() == b"b"
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar_of([("set/a.bin", b"a" * 9999)])[:-60], "cannot be unpacked"),
        (b"no archive", "cannot be unpacked"),
        (tar_of([("else/a.bin", b"a")]), "has no files in 'set'"),
        (zip_of([("set/a.bin", bytes(5000))]), "more than 4,000 bytes"),
        (zip_of([("set/a.bin", b"a"), ("", b"")]), "cannot be unpacked"),
    ],
    ids=["cut off", "no archive", "another folder", "too large", "nameless"],
)
def test_archives_that_cannot_be_used_leave_nothing(
    server, tmp_path, monkeypatch, content, message
):
    monkeypatch.setattr(download, "LARGEST", 4000)
    server.files["set.pack"] = content
    url = server.base + "set.pack"
    with pytest.raises(UserError, match=message):
        fetch_archive(url, md5(content), tmp_path / "into", "set", lambda path: True)
    assert list(tmp_path.iterdir()) == []


def test_a_source_fetches_once_and_only_when_asked(server, tmp_path):
    content = tar_of([("set/a.bin", b"a")])
    server.files["set.tgz"] = content
    origin = Archive(server.base + "set.tgz", md5(content), "set", lambda path: True)
    options = SourceOptions(data_dir=None, cache_dir=tmp_path)
    with pytest.raises(UserError, match="--download"):
        locate("mine", options, origin, ("a.bin",))
    assert server.asked == []
    asked = SourceOptions(data_dir=None, cache_dir=tmp_path, download=True)
    folder = locate("mine", asked, origin, ("a.bin",))
    assert folder == tmp_path / "data" / "mine" / "set"
    assert locate("mine", asked, origin, ("a.bin",)) == folder
    assert locate("mine", options, origin, ("a.bin",)) == folder  # found again without asking
    assert len(server.asked) == 1


def test_only_the_missing_plain_file_is_fetched(server, tmp_path):
    server.files = {"a.mat": b"a", "b.mat": b"b"}
    origin = Plain(server.base, {name: md5(c) for name, c in server.files.items()}, "set")
    (tmp_path / "a.mat").write_bytes(b"mine")
    options = SourceOptions(data_dir=tmp_path, cache_dir=tmp_path, download=True)
    assert locate("mine", options, origin, ("a.mat", "b.mat")) == tmp_path
    assert (tmp_path / "a.mat").read_bytes() == b"mine"
    assert (tmp_path / "b.mat").read_bytes() == b"b"
    assert server.asked == ["/b.mat"]
