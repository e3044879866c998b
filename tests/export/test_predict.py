"""`qunlearn predict`: image files through an exported file."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import made_once
from PIL import Image

import qunlearn as qu
from qunlearn.export import export_onnx, export_run

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def file(run_folder, tmp_path_factory):
    base = made_once(
        tmp_path_factory,
        "predict",
        lambda base: export_run(run_folder, base / "model.onnx", preprocess=True),
    )
    return base / "model.onnx"


def test_images_get_the_networks_probabilities(qunlearn, file, run_folder, digits, tmp_path):
    data = digits.data
    picked = [0, 5]
    images = []
    for i in picked:
        images.append(tmp_path / f"{i}.png")
        Image.fromarray(data.images[i, 0].numpy()).save(images[-1])
    code, out, err = qunlearn("predict", file, *images, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["images"]
    with torch.no_grad():
        expected = qu.load(run_folder)(data.normalise(data.images[picked])).softmax(1)
    for image, entry, shares in zip(images, found, expected, strict=True):
        assert entry["image"] == str(image)
        told = entry["classes"]
        assert list(told.values()) == sorted(told.values(), reverse=True)
        assert [told[name] for name in data.classes] == pytest.approx(shares.tolist(), abs=0.02)

    code, out, _ = qunlearn("predict", file, *images)
    assert code == 0
    assert next(iter(found[0]["classes"])) in out


def test_a_bad_image_costs_no_other_and_one_given_twice_is_shown_twice(qunlearn, file, tmp_path):
    one, two, text = (tmp_path / name for name in ("one.png", "two.png", "text.png"))
    for image, grey in ((one, 0), (two, 200)):
        Image.fromarray(np.full((8, 8), grey, dtype=np.uint8)).save(image)
    text.write_text("no image")
    words = (two, text, one, tmp_path / "none.png", two)
    code, out, err = qunlearn("predict", file, *words, "--json")
    assert code == 2
    assert [entry["image"] for entry in json.loads(out)["images"]] == [str(two), str(one), str(two)]
    first, second = err.splitlines()
    assert "text.png' cannot be read" in first
    assert "There is no image" in second

    code, out, err = qunlearn("predict", file, *words)
    assert (code, err.count("\n")) == (2, 2)
    shown = [line.split()[0] for line in out.splitlines() if ".png" in line]
    assert shown == [str(two), str(one), str(two)]


def test_bad_input_is_named(qunlearn, file, tmp_path):
    image = tmp_path / "i.png"
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(image)
    text = tmp_path / "t.png"
    text.write_text("no image")
    bare = tmp_path / "bare.onnx"
    export_onnx(torch.nn.Flatten(), bare, torch.randn(4, 1, 2, 2))
    split = qu.Split.make(qu.load_dataset("digits", subset=50))
    floats = replace(split.data, images=split.data.images.float())
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    export_onnx(net, tmp_path / "floats.onnx", qu.Split.make(floats))
    four = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 10))
    about = {"classes": ["a"] * 10, "mean": [0.5] * 4, "std": [0.5] * 4}
    export_onnx(four, tmp_path / "four.onnx", torch.randn(4, 4, 8, 8), about=about)
    for words, says in (
        ((tmp_path / "floats.onnx", image), "takes floating-point images"),
        ((tmp_path / "four.onnx", image), "takes images of 4 channels"),
        ((file, text), "t.png' cannot be read"),
        ((file, tmp_path / "none.png"), "There is no image"),
        ((text, image), "is not an ONNX file"),
        ((tmp_path / "none.onnx", image), "cannot be read"),
        ((bare, image), "has no class names"),
        ((file,), "Missing argument"),
    ):
        code, out, err = qunlearn("predict", *words)
        assert (code, out, err.count("\n")) == (2, "", 1), words
        assert says in err, err
