"""`qunlearn export` and `qunlearn evaluate --onnx`."""

import json
import shutil
import sys

import pytest
from sealed import seal

from qunlearn.store.run import Run


def test_a_run_is_exported_and_the_file_measured(qunlearn, run_folder, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    file = tmp_path / "model.onnx"
    code, out, err = qunlearn("export", run_folder, "--out", file, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["agreement"]["samples"] == 450
    assert told["agreement"]["top1"] >= 99.5
    assert told["bytes"] == file.stat().st_size

    code, out, _ = qunlearn("evaluate", run_folder, "--onnx", file, "--json")
    assert code == 0
    ours = Run.open(run_folder).metrics["parts"]
    for part, theirs in json.loads(out)["metrics"]["parts"].items():
        assert theirs["accuracy"] == pytest.approx(ours[part]["accuracy"], abs=1)
        assert theirs["entropy"] == pytest.approx(ours[part]["entropy"], abs=0.01)

    code, _, err = qunlearn("export", run_folder, "--out", file)
    assert (code, "exists" in err) == (2, True)

    other = tmp_path / "other"
    shutil.copytree(run_folder, other)
    info = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**info, "model_sha256": "0"}))
    seal(other)
    code, _, err = qunlearn("evaluate", other, "--onnx", file)
    assert (code, "was not exported from" in err) == (2, True)


def test_missing_packages_are_named_with_the_remedy(qunlearn, run_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, out, err = qunlearn("export", run_folder, "--out", tmp_path / "m.onnx")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "pip install onnx onnxscript onnxruntime" in err
    assert not list(tmp_path.iterdir())


def test_the_folder_of_the_output_must_be_there(qunlearn, run_folder, tmp_path):
    code, _, err = qunlearn("export", run_folder, "--out", tmp_path / "no" / "m.onnx")
    assert (code, "does not exist; create it first" in err) == (2, True)


def test_a_file_is_replaced_only_when_asked_and_only_if_it_is_one(qunlearn, run_folder, tmp_path):
    file, link, folder = tmp_path / "model.onnx", tmp_path / "link.onnx", tmp_path / "folder"
    file.write_text("precious")
    link.symlink_to(file)
    folder.mkdir()
    code, _, err = qunlearn("export", run_folder, "--out", file)
    assert (code, "--overwrite" in err) == (2, True)
    for path in (link, folder, tmp_path / "dangling.onnx"):
        if not path.exists():
            path.symlink_to(tmp_path / "elsewhere")
        code, _, err = qunlearn("export", run_folder, "--out", path, "--overwrite")
        assert (code, "not a regular file" in err) == (2, True)
    words = ("export", run_folder, "--out", file, "--overwrite")
    code, _, err = qunlearn(*words, "--least-agreement", 100, "--opset", 3)  # which cannot be
    assert (code, file.read_text()) == (2, "precious")
    assert qunlearn(*words)[0] == 0
    assert file.stat().st_size > 1000
    assert {path.name for path in tmp_path.iterdir()} == {
        *("model.onnx", "link.onnx", "folder", "dangling.onnx")
    }
