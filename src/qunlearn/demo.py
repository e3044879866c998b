"""The story on embedded data: train with 4 bits, forget a tenth, compare with Retrain, report."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qunlearn.data import load_dataset
from qunlearn.report import report_comparison
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.runs.train import train_run
from qunlearn.store.files import make_folder, write_bytes
from qunlearn.store.run import Run
from qunlearn.study.compare import compare_run
from qunlearn.study.config import CompareConfig
from qunlearn.study.table import Table

SAMPLES, EPOCHS = 1347, 60
NOISE = 100
"""The standard deviation, in grey levels of 255, of the noise that is drawn for each digit once."""

TRAINING = {
    "model": "cnn",
    "batch_size": 64,
    "lr": 0.1,
    "warmup": 2,
    "threads": 1,
}
METHODS = "ft,rl,calibrated"


@dataclass(frozen=True)
class Demo:
    """What the story came to: the original's scores, the comparison, and the page."""

    original: RunMetrics
    table: Table
    report: Path


def demo(out: Path, seed: int = 0, samples: int = SAMPLES, epochs: int = EPOCHS) -> Demo:
    """Run the story in the folder `out`."""
    Run.check_free(out)
    make_folder(out)
    data = noisy_digits(out, samples)
    training = {**TRAINING, "dataset": str(data), "epochs": epochs, "seed": seed}
    original = train_run(TrainConfig.parse(training), out / "original")
    asked = {"run": original.path, "random": 0.1, "forget_seed": seed, "methods": METHODS}
    config = CompareConfig.parse(
        {**asked, "seeds": 3, "threads": 1, "workers": min(2, os.cpu_count() or 1)}
    )
    table = compare_run(config, out / "noisy-digits")
    return Demo(metrics_of(original), table, report_comparison(out / "noisy-digits"))


def noisy_digits(out: Path, samples: int) -> Path:
    """Write the digits, so noisy that a network gets many right only if it has memorised them.

    Clean digits are nearly all right whether they were trained on or not: nothing to forget.
    """
    digits = load_dataset("digits", subset=samples)
    clean, labels, test = digits.images[:, 0].numpy(), digits.labels.numpy(), digits.is_test.numpy()
    noisy = clean + np.random.default_rng(0).normal(0, NOISE, clean.shape)
    images = noisy.clip(0, 255).astype(np.uint8)
    content = io.BytesIO()
    np.savez(
        content,
        x_train=images[~test],
        y_train=labels[~test],
        x_test=images[test],
        y_test=labels[test],
    )
    path = out / "noisy-digits.npz"
    write_bytes(path, content.getvalue())
    return path
