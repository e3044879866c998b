"""What somebody new does, with a network, data and a Retrain of their own, by the docs alone."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset

import qunlearn as qu

NET = """
from torch import nn

def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 12, 3), nn.ReLU(), nn.Flatten(), nn.Linear(192, 10),
    )
"""
TRAIN, TEST, PERSON = 400, 200, 7
OWN = ("--model", "newcomers_net:make_net")


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A folder to work in, with the module that makes the newcomer's own network."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "newcomers_net.py").write_text(NET)
    yield lambda: qu.ModelSpec("newcomers_net:make_net", 10, 1, 8).build()
    sys.modules.pop("newcomers_net", None)


@pytest.fixture
def do(qunlearn):
    """Gives a command, and expects it to be done, whether or not a target was met."""

    def call(command, *words):
        code, out, said = qunlearn(command, *words)
        assert code in ((0, 3) if command == "forget" else (0,)), (command, words, said)
        return out

    return call


def own_arrays():
    """Images, labels and users; a fifth of the labels is wrong, so that samples are memorised."""
    table, rng = load_digits(), np.random.default_rng(0)
    images = np.minimum(table.images * 16, 255).astype(np.uint8)[: TRAIN + TEST]
    labels = table.target[: TRAIN + TEST].copy()
    users = rng.integers(0, 20, TRAIN + TEST)
    wrong = (np.arange(TRAIN + TEST) < TRAIN) & (rng.random(TRAIN + TEST) < 0.2)
    labels[wrong] = rng.integers(0, 10, wrong.sum())
    return images, labels, users


def own_data(**options):
    images, labels, users = own_arrays()
    return qu.Data(
        train=(images[:TRAIN], labels[:TRAIN]),
        test=(images[TRAIN:], labels[TRAIN:]),
        ids=[f"row-{n}" for n in range(TRAIN)],
        metadata={"user": users[:TRAIN]},
        test_metadata={"user": users[TRAIN:]},
        **options,
    )


def test_own_network_and_arrays_from_python_to_the_device(net, do, tmp_path):
    data = own_data(mean=0.3, std=0.4, augment={"crop": 1})
    split = qu.Split.make(data)
    model = qu.quantize(net(), qu.QuantSpec(weights=4, activations=4, quantizer="lsq+"))
    qu.train(model, split, epochs=6, batch_size=64, lr=0.05, save="original", data=True)
    asked = split.forget_where(f"user == {PERSON}")
    result = qu.forget(model, asked, epochs=2)
    print(result.verdict)
    result.save("forgotten", origin="original")
    scores = qu.evaluate(result.model, asked, reference=model)
    assert {"FA", "RA", "TA", "MIA", "AG"} <= scores.to_json().keys()
    exported = qu.export(result.model, "model.onnx", target="qdq")
    assert exported.agreement.top1 == 100

    do("report", "forgotten")
    do("evaluate", "forgotten", *OWN)
    do("export", "forgotten", *OWN, "--out", "again.onnx")
    do("evaluate", "forgotten", *OWN, "--onnx", "again.onnx")
    assert "Did the model forget" in (tmp_path / "forgotten" / "report.html").read_text()


class Pictures(Dataset):
    """A Dataset as torch's tutorial has it."""

    def __init__(self, rows):
        images, labels, _ = own_arrays()
        self.images, self.labels = images[rows], labels[rows]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, k):
        return torch.from_numpy(self.images[k][None] / np.float32(255)), int(self.labels[k])


def test_own_dataset_and_own_loop(net, do):
    data = qu.Data(train=Pictures(slice(0, TRAIN)), test=Pictures(slice(TRAIN, None)))
    split = qu.Split.random(data, fraction=0.05, seed=1)
    model, retained = net(), qu.Loader(data, split.train, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(5):
        for batch in retained.epoch(epoch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch.images), batch.labels).backward()
            optimizer.step()
    result = qu.forget(model, split, epochs=1)
    result.save("forgotten", factory="newcomers_net:make_net", data="pictures.npz")
    do("report", "forgotten")
    do("export", "forgotten", *OWN, "--out", "model.onnx")
    reference = qu.forget(model, split, "retrain", fresh=lambda seed: net(), epochs=2)
    assert qu.evaluate(result.model, split, reference=reference.model).AG >= 0


def write_npz(path, without=None):
    """The newcomer's .npz, with or without a person's samples."""
    images, labels, users = own_arrays()
    ids = np.array([f"row-{n}" for n in range(TRAIN + TEST)])
    keep = users != without
    arrays = {}
    for part, rows in {"train": slice(0, TRAIN), "test": slice(TRAIN, None)}.items():
        chosen = keep[rows]
        arrays[f"x_{part}"], arrays[f"y_{part}"] = images[rows][chosen], labels[rows][chosen]
        arrays[f"id_{part}"] = ids[rows][chosen]
        arrays[f"meta_{part}_user"] = users[rows][chosen].astype(str)
    np.savez(path, **arrays)


def test_own_npz_and_all_samples_of_a_person_erased_from_it(net, do, tmp_path):
    write_npz("own.npz")
    quick = ("--epochs", 4, "--batch-size", 64, "--lr", 0.05)
    do("train", "--dataset", "own.npz", *OWN, *quick, "--out", "original")
    shallow = ("--depth", "shallow")
    do("forget", "original", "--where", f"user == {PERSON}", *OWN, *shallow, "--out", "forgotten")
    write_npz("own.npz", without=PERSON)
    do("check", "forgotten")
    do("report", "forgotten")
    do("export", "forgotten", *OWN, "--out", "model.onnx")
    do("evaluate", "forgotten", *OWN)
    do("forget", "forgotten", "--class", 3, *OWN, "--epochs", 1, "--out", "next")


def test_own_folder_of_images(net, do, tmp_path):
    images, labels, _ = own_arrays()
    for n in range(TRAIN + TEST):
        place = tmp_path / "images" / ("train" if n < TRAIN else "test") / f"digit-{labels[n]}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[n]).save(place / f"{n}.png")
    flags = ("--width", 0.125, "--epochs", 2, "--batch-size", 64)
    do("train", "--dataset", "images", *flags, "--out", "original")
    theirs = [f"train/digit-{labels[n]}/{n}.png" for n in range(100, 120)]
    theirs += [f"test/digit-{labels[n]}/{n}.png" for n in range(TRAIN, TRAIN + 5)]
    (tmp_path / "please.csv").write_text("\n".join(["id", *theirs]))
    do("forget", "original", "--ids", "please.csv", "--depth", "shallow", "--out", "forgotten")
    for name in theirs:
        (tmp_path / "images" / name).unlink()
    do("report", "forgotten")
    do("export", "forgotten", "--out", "model.onnx")


def trained_elsewhere(net, images, labels, epochs=8):
    model = net().train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    pixels = torch.from_numpy(images[:, None] / np.float32(255))
    truth = torch.from_numpy(labels).long()
    for epoch in range(epochs):
        order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pixels[rows]), truth[rows]).backward()
            optimizer.step()
    return model.eval()


def test_own_network_adopted_and_own_retrain(net, do):
    images, labels, users = own_arrays()
    write_npz("own.npz")
    model = trained_elsewhere(net, images[:TRAIN], labels[:TRAIN])
    save_file(model.state_dict(), "weights.safetensors")
    rest = users[:TRAIN] != PERSON
    retrained = trained_elsewhere(net, images[:TRAIN][rest], labels[:TRAIN][rest])
    save_file(retrained.state_dict(), "retrained.safetensors")

    scaled = ("--mean", 0.0, "--std", 1.0)
    source = ("--dataset", "own.npz", *OWN, *scaled, "--held-out", "test:0.5")
    do("adopt", "--weights", "weights.safetensors", *source, "--out", "original")
    shallow = ("--depth", "shallow")
    do("forget", "original", "--where", f"user == {PERSON}", *OWN, *shallow, "--out", "forgotten")
    declare = ("--weights", "retrained.safetensors", "--retrain-of", "forgotten", *OWN)
    do("adopt", *declare, "--out", "retrain")
    assert "declared" in do("evaluate", "forgotten", *OWN, "--reference", "retrain")
    do("report", "forgotten", "--reference", "retrain")
    write_npz("own.npz", without=PERSON)
    do("export", "forgotten", *OWN, "--out", "model.onnx")
