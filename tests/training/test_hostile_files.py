"""Files by somebody who means harm: bounded before memory is taken, and no code is run."""

import base64
import io
import json
import shutil
import struct
import zipfile
import zlib

import numpy as np
import pytest
import torch
from conftest import SMALL, flags
from PIL import Image
from report.test_page import Reader
from safetensors.torch import load_file, save_file
from sealed import seal

from qunlearn.data import load_dataset, memory
from qunlearn.data.rules import parse_rule
from qunlearn.errors import UserError
from qunlearn.export.network import _about
from qunlearn.models import ModelSpec
from qunlearn.report import report_run
from qunlearn.runs.model_file import load
from qunlearn.store import files, limits
from qunlearn.store.weights import read_tensors


@pytest.fixture
def run(run_folder, tmp_path):
    return shutil.copytree(run_folder, tmp_path / "run")


def forge(run, **changes):
    """Change the header of a run's model, and every checksum with it."""
    path = run / "model.safetensors"
    size = int.from_bytes(path.read_bytes()[:8], "little")
    head = json.loads(path.read_bytes()[8 : 8 + size])["__metadata__"]["qunlearn"]
    save_file(load_file(path), path, metadata={"qunlearn": json.dumps(json.loads(head) | changes)})
    seal(run)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"width": 16}, "fewer are there"),
        ({"classes": 900_000, "width": 1}, "fewer are there"),
        ({"classes": 10**12}, r"classes = 1000000000000 is invalid"),
        ({"channels": -1}, "channels = -1"),
        ({"size": 2.5}, "size = 2.5"),
        ({"classes": True}, "classes = True"),
        ({"width": "1"}, "The width '1'"),
        ({"name": ["resnet18"]}, "is not a string"),
        ({"name": "no-such-net"}, "Unknown model"),
    ],
)
def test_a_header_cannot_ask_for_an_absurd_network(run, asked, says):
    spec = {"name": "resnet18", "classes": 10, "channels": 1, "size": 8, "width": 0.125}
    forge(run, model=spec | asked)
    with pytest.raises(UserError, match=says):
        load(run)


@pytest.mark.parametrize("bits", [1, 64, 10**12, "4", [4]])
def test_a_header_cannot_ask_for_absurd_bits(run, bits):
    forge(run, quant={"weights": bits})
    with pytest.raises(UserError, match="is damaged"):
        load(run)


def test_a_small_header_cannot_unpack_to_an_enormous_manifest(run):
    packed = base64.b64encode(zlib.compress(bytes((1 << 28) + 1), 1)).decode()
    assert len(packed) < 2_000_000
    forge(run, split=packed)
    with pytest.raises(UserError, match="is damaged"):
        load(run)


@pytest.mark.parametrize("shape", [[10**12], [10**6, 10**6], [2**62, 2**62], [-1]])
def test_tensors_cannot_claim_more_than_the_file_has(tmp_path, shape):
    entry = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}
    head = json.dumps({"a": entry}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))
    with pytest.raises(UserError, match="not an intact safetensors file"):
        read_tensors(tmp_path / "a")


def npy(shape, kind="|u1", data=b""):
    made = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(made, header)
    return made.getvalue() + data


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy((10**12,)), "is smaller than that"),
        (npy((10**6, 10**6, 10**6, 10**6)), "is smaller than that"),
        (npy((3,), "|O", b"cos\nsystem\n(S'touch harm'\ntR."), "holds objects"),
        (b"rubbish", "magic"),
    ],
)
def test_arrays_cannot_claim_more_than_the_npz_has(tmp_path, content, says):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as pack:
        pack.writestr("x_train.npy", content)
    with pytest.raises(UserError, match=says):
        load_dataset(str(tmp_path / "a.npz"))
    assert not (tmp_path / "harm").exists()


def test_a_zip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "SUSPICIOUS", 1 << 24)
    images = npy((1 << 15, 1, 32, 32), data=bytes(1 << 25))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("x_train.npy", images)
    with pytest.raises(UserError, match=r"would unpack to 33,554,560, far more than images do"):
        load_dataset(str(tmp_path / "a.npz"))


def test_text_is_read_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setitem(limits.LARGEST, "JSON", 1000)
    (tmp_path / "a.json").write_text(json.dumps("x" * 998))
    assert files.read_json(tmp_path / "a.json") == "x" * 998
    (tmp_path / "a.json").write_text(json.dumps("x" * 999))
    with pytest.raises(UserError, match="more than 1,000 bytes"):
        files.read_json(tmp_path / "a.json")
    with pytest.raises(UserError, match="is a device, not a regular file"):
        files.read_json(files.Path("/dev/zero"))


def test_links_and_paths_that_lead_out_of_a_data_set_are_refused(tmp_path):
    for name in ("a", "b"):
        place = tmp_path / "set" / "train" / name
        place.mkdir(parents=True)
        for k in range(3):
            Image.new("RGB", (8, 8), (k, k, 9)).save(place / f"{k}.png")
    secret = tmp_path / "secret"
    shutil.copytree(tmp_path / "set" / "train" / "a", secret)
    base = tmp_path / "set"
    (base / "train" / "b" / "within.png").symlink_to(base / "train" / "a" / "0.png")
    assert len(load_dataset(str(base))) == 7  # a link within the folder is fine
    (base / "train" / "b" / "out.png").symlink_to(secret / "0.png")
    with pytest.raises(UserError, match=r"out\.png' is a link that leads out"):
        load_dataset(str(base))
    (base / "train" / "b" / "out.png").unlink()
    (base / "train" / "c").symlink_to(secret)
    with pytest.raises(UserError, match="c' is a link that leads out"):
        load_dataset(str(base))
    (tmp_path / "shortcut").symlink_to(base)  # the folder itself may be one: it was typed
    (base / "train" / "c").unlink()
    assert len(load_dataset(str(tmp_path / "shortcut"))) == 7


@pytest.mark.parametrize("name", ["../../../secret.JPEG", "/etc/passwd", "..", "x" * 300])
def test_names_in_a_list_of_images_cannot_climb(tmp_path, name):
    base = tmp_path / "tiny-imagenet-200"
    (base / "train" / "n1" / "images").mkdir(parents=True)
    (base / "val").mkdir()
    (base / "wnids.txt").write_text("n1\n")
    (base / "val" / "val_annotations.txt").write_text(f"{name}\tn1\n")
    with pytest.raises(UserError, match=r"a path or too long|file that is missing"):
        load_dataset("tiny-imagenet", data_dir=tmp_path)
    (base / "wnids.txt").write_text(f"{name}\n")
    with pytest.raises(UserError, match=r"a path or too long|is missing"):
        load_dataset("tiny-imagenet", data_dir=tmp_path)


@pytest.mark.parametrize("text", ["(" * 100_000, "a == 1 and " * 100_000, "a in [" * 100_000])
def test_rules_nested_or_chained_without_end(text):
    with pytest.raises(UserError):
        parse_rule(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "1", '{"format": 2}', "{}"])
def test_what_an_onnx_file_says_of_itself(text):
    with pytest.raises(UserError):
        _about({"qunlearn": text}, "model.onnx")


def test_a_file_never_decides_which_code_is_run(qunlearn, tmp_path):
    (tmp_path / "a.toml").write_text('model = "plain_net:make"\n')
    words = flags({name: value for name, value in SMALL.items() if name != "model"})
    words += ["--config", tmp_path / "a.toml", "--out", tmp_path / "run"]
    code, _, err = qunlearn("train", *words)
    assert (code, "--model plain_net:make" in err) == (2, True)
    assert not (tmp_path / "run").exists()
    code, _, err = qunlearn("train", *words, "--model", "plain_net:make", "--quantizer", "none")
    assert (code, err) == (0, "")
    (tmp_path / "b.toml").write_text('method = "plain_net:make"\n')
    words = [tmp_path / "run", "--random", 0.1, "--config", tmp_path / "b.toml"]
    code, _, err = qunlearn("forget", *words, "--out", tmp_path / "forgot")
    assert (code, "--method plain_net:make" in err) == (2, True)


def test_hostile_names_are_only_text_in_a_report(qunlearn, tmp_path):
    digits = load_dataset("digits", subset=200)
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    parts = {"train": ~digits.is_test, "test": digits.is_test}
    arrays = {f"x_{name}": digits.images[rows].numpy()[:, 0] for name, rows in parts.items()}
    arrays |= {f"y_{name}": digits.labels[rows].numpy() for name, rows in parts.items()}
    classes = np.array([f"{evil}{k}" for k in range(10)])
    file = tmp_path / f"{evil.replace('/', '')}.npz"
    np.savez(file, classes=classes, **arrays)
    settings = flags({**SMALL, "dataset": file, "epochs": 1})
    assert qunlearn("train", *settings, "--out", tmp_path / "<b>original")[0] == 0
    out = tmp_path / "<script>alert(2)<&script>"
    words = [tmp_path / "<b>original", "--where", f"class == '{evil}3'", "--threads", 1]
    code, _, err = qunlearn("forget", *words, "--epochs", 1, "--accept", "--out", out)
    assert (code, err) == (0, "")
    page = report_run(out).read_text()
    reader = Reader(page)
    assert not {"script", "img"} & set(reader.tags)
    assert "onerror" not in reader.attributes
    assert "alert(1)" in reader.text  # it is shown, as text
    for drawn in (out / "figures").glob("*.svg"):
        assert "<script" not in drawn.read_text()


def test_a_model_spec_is_checked_wherever_it_comes_from():
    with pytest.raises(UserError, match="classes = 0"):
        ModelSpec("resnet18", classes=0, channels=1, size=8)
    model = ModelSpec("resnet18", classes=2, channels=1, size=8, width=0.125).build().eval()
    assert model(torch.zeros(1, 1, 8, 8)).shape == (1, 2)
