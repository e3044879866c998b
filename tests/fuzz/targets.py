"""What is fuzzed: a valid file of each kind that qunlearn reads, and the reader."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from conftest import SMALL
from fuzz import mutate
from PIL import Image
from report.made_up import comparison, table
from sealed import seal

from qunlearn.cli.settings import settings_in
from qunlearn.data import ImageData, Split, load_dataset, read_ids
from qunlearn.data.sources import cifar
from qunlearn.export.network import _about
from qunlearn.models import ModelSpec
from qunlearn.quant import QuantSpec, describe
from qunlearn.report import report_folder
from qunlearn.report.gather import outputs_after
from qunlearn.runs.check import check_run
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import data_config, split_of
from qunlearn.runs.evaluate import labels_of
from qunlearn.runs.explain import conflict_of
from qunlearn.runs.forget import forget_run
from qunlearn.runs.model_file import load, model_with
from qunlearn.runs.outputs import measured_before
from qunlearn.runs.provenance import provenance_of
from qunlearn.runs.recipe import recipe_of
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.download import fetch_archive
from qunlearn.store.run import Run
from qunlearn.store.weights import read_tensors
from qunlearn.study.cells import Cell, result_of
from qunlearn.study.check import check_folder
from qunlearn.study.compare import against
from qunlearn.study.source import Source


@dataclass(frozen=True)
class Target:
    """A valid file, how it is changed, and what reads it."""

    path: Path
    mutate: Callable[[bytes, mutate.Chance], bytes]
    read: Callable[[], object]


def all_targets(base: Path) -> dict[str, Target]:
    """Every kind of file, made below `base`."""
    made = {**of_runs(base), **of_tables(base), **of_lists(base), **of_data(base)}
    return {name: made[name] for name in sorted(made)}


def of_runs(base: Path) -> dict[str, Target]:
    """The files of a run that has forgotten; checksums are taken anew after each change."""
    train_run(TrainConfig.parse({**SMALL, "epochs": 1}), base / "original")
    asked = {"run": base / "original", "random": 0.1, "method": "calibrated", "threads": 1}
    settings = {"epochs": 1, "batch_size": 60}
    config = ForgetConfig.parse({**asked, "settings": settings})
    run = forget_run(config, base / "run")
    path, split = run.path, split_of(run)
    model = load(path)
    cell = Cell("calibrated", 0, config, path, str(provenance_of(run).request))

    oeu = forget_run(
        ForgetConfig.parse({**asked, "method": "oeu", "settings": settings}), base / "oeu"
    ).path

    def sealed(read: Callable[[], object], path: Path = path) -> Callable[[], object]:
        def both() -> None:
            digest = hashlib.sha256(Run(path).model_path.read_bytes()).hexdigest()
            with contextlib.suppress(ValueError, AttributeError, RecursionError):
                info = json.loads((path / "run.json").read_text())
                info.update({"model_sha256": digest} if "model_sha256" in info else {})
                (path / "run.json").write_text(json.dumps(info))
            seal(path)
            check_run(path)
            Run.open(path)
            read()

        return both

    def described() -> None:
        model = load(path)
        describe(model)
        with torch.inference_mode():
            model(split.data.normalise(split.data.images[:2]))

    def of_figures() -> None:
        result_of(run, 0)
        cell.check()
        reported(path)

    def of_outputs() -> None:
        outputs_after(run, labels_of(split))
        measured_before(run, model, split)
        against(run, run, split, 0)

    def of_config() -> None:
        data_config(run)
        recipe_of(run)
        result_of(run, 0)
        settings_in(path / "config.toml", list(ForgetConfig.model_fields), ForgetConfig)
        ForgetConfig.parse(run.config)

    def of_training() -> None:
        values = settings_in(base / "train.toml", list(TrainConfig.model_fields), TrainConfig)
        TrainConfig.parse(values)

    shutil.copy(base / "original" / "config.toml", base / "train.toml")
    shutil.copy(base / "original" / "model.safetensors", base / "adopted.safetensors")
    spec = ModelSpec("cnn", classes=10, channels=1, size=8, width=0.125)
    adopted = base / "adopted.safetensors"
    (base / "about.json").write_text(
        json.dumps(
            {
                **{"format": 1, "mean": [0.1], "std": [0.2], "preprocessing": True},
                "run": {"model_sha256": "0", "name": "x"},
            }
        )
    )
    manifest = path / "split.json"
    return {
        "model": Target(run.model_path, mutate.in_safetensors, sealed(described)),
        "predictions": Target(
            path / "predictions.safetensors", mutate.in_safetensors, sealed(of_outputs)
        ),
        "adopted weights": Target(
            adopted,
            mutate.in_safetensors,
            lambda: model_with(spec, QuantSpec(), read_tensors(adopted), adopted),
        ),
        "manifest": Target(
            manifest,
            mutate.in_json,
            sealed(lambda: Split.from_json(run.split, split.data, split.key)),
        ),
        "config": Target(path / "config.toml", mutate.in_words, sealed(of_config)),
        "training config": Target(base / "train.toml", mutate.in_words, of_training),
        "run.json": Target(path / "run.json", mutate.in_json, sealed(of_figures)),
        "metrics": Target(path / "metrics.json", mutate.in_json, sealed(of_figures)),
        "history": Target(
            oeu / "history.jsonl",
            mutate.in_lines(mutate.in_json),
            sealed(lambda: conflict_of(oeu).to_dict(), oeu),
        ),
        "checksums": Target(path / "checksums.txt", mutate.in_words, lambda: check_run(path)),
        "onnx metadata": Target(
            base / "about.json",
            mutate.in_json,
            lambda: _about({"qunlearn": (base / "about.json").read_text(errors="replace")}, "m"),
        ),
    }


turns = itertools.count()


def reported(folder: Path) -> None:
    """Write the page; not each time, because drawing takes a second or more."""
    if next(turns) % 10 == 0:
        report_folder(folder)


def of_tables(base: Path) -> dict[str, Target]:
    """The files of a comparison."""
    folder = comparison(base / "table", table())

    def read() -> None:
        check_folder(folder)
        Source.read(folder / "table.json").row("forgetter")
        reported(folder)

    return {
        "table": Target(folder / "table.json", mutate.in_json, read),
        "comparison": Target(folder / "compare.toml", mutate.in_words, read),
    }


def of_lists(base: Path) -> dict[str, Target]:
    """Ids, metadata and rules."""
    data = load_dataset("digits", subset=100)
    split = Split.make(data)
    names = [data.ids[row] for row in split.train[:20].tolist()]
    (base / "ids.txt").write_text("\n".join(names))
    (base / "ids.json").write_text(json.dumps({"ids": names}))
    (base / "ids.csv").write_text("id,why\n" + "".join(f'{name},"a, b"\n' for name in names))
    wide = "Why;Sample\r\n" + "".join(f'"a, b";{name}\r\n' for name in names)
    (base / "ids.tsv").write_bytes(wide.encode("utf-16"))
    rows = [f"{name},{k},front,2024-05-0{k % 9 + 1}\n" for k, name in enumerate(names)]
    (base / "people.csv").write_text("id,user,camera,day\n" + "".join(rows))
    rule = 'user < 12 and (camera in [front, "rear"] or day < 2024-05-03) and class != "3"\n'
    (base / "rule.txt").write_text(rule)
    joined = Split.make(data.join(base / "people.csv"))

    def ruled() -> Split:
        text = (base / "rule.txt").read_text(errors="replace")
        return joined.forget_where(text)

    def of_people() -> Split:
        made = Split.make(data.join(base / "people.csv"))
        return made.forget_where("user == 3 or camera == front or day > 2024-05-04")

    return {
        **{
            f"ids.{kind}": Target(
                base / f"ids.{kind}",
                mutate.in_json if kind == "json" else mutate.in_words,
                lambda kind=kind: split.forget_ids(read_ids(base / f"ids.{kind}")).to_json(),
            )
            for kind in ("txt", "json", "csv")
        },
        "ids.tsv": Target(
            base / "ids.tsv",
            mutate.in_bytes,
            lambda: split.forget_ids(read_ids(base / "ids.tsv", "sample")).to_json(),
        ),
        "metadata": Target(base / "people.csv", mutate.in_words, of_people),
        "rule": Target(base / "rule.txt", mutate.in_words, ruled),
    }


def of_data(base: Path) -> dict[str, Target]:
    """Data files of each source, with a few images each."""
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (12, 8, 8), dtype=np.uint8)
    labels = np.arange(12) % 2
    names = np.array([f"a{k}" for k in range(12)])
    np.savez(base / "a.npz", x_train=pixels, y_train=labels, id_train=names, classes=names[:2])
    about = {"mean": 0.5, "std": 0.25, "crop": 1, "meta_train_user": names}
    parts = {"x_test": pixels[:4] / 255, "y_test": labels[:4]}
    np.savez_compressed(
        base / "b.npz", x_train=pixels / 255, y_train=labels, **parts, **about, layout="NHW"
    )

    def mapped(**options: int) -> None:
        small = {"cache_dir": base / "cache", "memory_budget": 100}
        used(load_dataset(f"{base}/b.npz", **small, **options))

    targets = {
        "npz": Target(base / "a.npz", mutate.in_zip, lambda: used(load_dataset(f"{base}/a.npz"))),
        "packed npz": Target(base / "b.npz", mutate.in_zip, mapped),
        "npz subset": Target(base / "b.npz", mutate.in_bytes, lambda: mapped(subset=6)),
    }
    return targets | of_cifar(base) | of_svhn(base) | of_images(base) | of_archives(base)


def used(data: ImageData) -> None:
    """Whatever is read must be good for a split and its manifest."""
    with contextlib.suppress(ZeroDivisionError):
        split = Split.make(data, held_out=0.3)
        Split.from_json(split.to_json(), data)


def of_cifar(base: Path) -> dict[str, Target]:
    small = dataclasses.replace(
        cifar.CIFAR10,
        train=dict.fromkeys(cifar.CIFAR10.train, 3),
        test=dict.fromkeys(cifar.CIFAR10.test, 3),
    )
    folder = base / "cifar-10-batches-bin"
    folder.mkdir()
    for name in small.files:
        records = [bytes([k]) + bytes(3072) for k in range(3)]
        (folder / name).write_bytes(b"".join(records))
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij"))

    def read() -> None:
        cifar.CIFAR10, kept = small, cifar.CIFAR10
        try:
            used(load_dataset("cifar10", data_dir=base))
        finally:
            cifar.CIFAR10 = kept

    return {
        "cifar": Target(folder / "data_batch_1.bin", mutate.in_bytes, read),
        "cifar names": Target(folder / "batches.meta.txt", mutate.in_words, read),
    }


def of_svhn(base: Path) -> dict[str, Target]:
    from scipy.io import savemat

    targets = {}
    for kind, packed in (("mat", False), ("packed mat", True)):
        folder = base / kind
        folder.mkdir()
        for part, count in (("train", 12), ("test", 4)):
            content = {
                "X": np.zeros((32, 32, 3, count), dtype=np.uint8),
                "y": np.array([[k % 10 + 1] for k in range(count)], dtype=np.uint8),
            }
            savemat(folder / f"{part}_32x32.mat", content, do_compression=packed)
        targets[kind] = Target(
            folder / "train_32x32.mat",
            mutate.in_bytes,
            lambda folder=folder: used(load_dataset("svhn", data_dir=folder)),
        )
    return targets


def of_images(base: Path) -> dict[str, Target]:
    kinds = {"png": "PNG", "jpg": "JPEG", "bmp": "BMP", "gif": "GIF", "webp": "WEBP"}
    kinds |= {"tif": "TIFF", "ppm": "PPM"}
    targets = {}
    for ending, kind in kinds.items():
        folder = base / f"images {ending}"
        for k in range(8):
            place = folder / "train" / f"class {k % 2}"
            place.mkdir(parents=True, exist_ok=True)
            colours = np.random.default_rng(k).integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(colours).save(place / f"{k}.{ending}", kind)
        targets[f"image {ending}"] = Target(
            folder / "train" / "class 0" / f"0.{ending}",
            mutate.in_bytes,
            lambda folder=folder: used(load_dataset(str(folder), image_size=8)),
        )
    tiny = base / "tiny-imagenet-200"
    for number in range(2):
        for place in (tiny / "train" / f"n{number}" / "images", tiny / "val" / "images"):
            place.mkdir(parents=True, exist_ok=True)
            for k in range(3):
                name = f"n{number}_{k}.JPEG"
                Image.new("RGB", (64, 64), (k, number, 9)).save(place / name, "JPEG")
    (tiny / "wnids.txt").write_text("n0\nn1\n")
    lines = [f"n{number}_{k}.JPEG\tn{number}\t0" for number in range(2) for k in range(3)]
    (tiny / "val" / "val_annotations.txt").write_text("\n".join(lines))
    for file in ("wnids.txt", "val/val_annotations.txt"):
        targets[f"tiny {Path(file).stem}"] = Target(
            tiny / file, mutate.in_words, lambda: used(load_dataset("tiny-imagenet", data_dir=base))
        )
    return targets


def of_archives(base: Path) -> dict[str, Target]:
    """Downloads: whoever made the archive knew its checksum."""
    with tarfile.open(base / "set.tar.gz", "w:gz") as tar:
        for name in ("set/a.bin", "set/sub/b.bin"):
            entry = tarfile.TarInfo(name)
            entry.size = 1000
            tar.addfile(entry, io.BytesIO(bytes(1000)))
    with zipfile.ZipFile(base / "set.zip", "w", zipfile.ZIP_DEFLATED) as pack:
        for name in ("set/a.bin", "set/sub/b.bin"):
            pack.writestr(name, bytes(1000))

    def read(path: Path) -> None:
        into = base / "unpacked"
        shutil.rmtree(into, ignore_errors=True)
        digest = hashlib.md5(path.read_bytes()).hexdigest()
        fetch_archive(path.as_uri(), digest, into, "set", lambda name: name.endswith(".bin"))

    return {
        "tar": Target(base / "set.tar.gz", mutate.in_bytes, lambda: read(base / "set.tar.gz")),
        "zip": Target(base / "set.zip", mutate.in_zip, lambda: read(base / "set.zip")),
    }
