"""The story on embedded data: a 4-bit network memorises digits, forgets a fifth, and shows it.

The data, the size of the request, the network and its epochs were chosen so that the case is clear.
Over seeds 0 to 4 (`for seed in 0 1 2 3 4; do qunlearn demo --seed $seed; done`), `forget` answers a
plain yes each time, the relearning probe brings nothing back, and forgetting takes 9 to 11 % of
Retrain's time. The mean gap to the one Retrain is 0.6 to 3.9 points; beside it the answer is yes
for seeds 0 and 2, "mostly" for seeds 1 and 4 and "too much" for seed 3.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qunlearn.data import load_dataset
from qunlearn.report import report_run
from qunlearn.report.judge import measured_again, verdict_of
from qunlearn.report.verdict import Verdict
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.evaluate import evaluate_run
from qunlearn.runs.forget import forget_run
from qunlearn.runs.metrics import RunMetrics, metrics_of
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.files import make_folder, write_bytes
from qunlearn.store.run import Run

SAMPLES, EPOCHS = 1100, 140
NOISE = 100
"""The spread of each digit's noise, in grey levels of 255."""
CROP = 1
"""Digits are moved by up to a pixel in training, as photographs are cropped."""

SHARE = 0.2
"""The share to forget: enough samples to judge by."""

TRAINING = {
    "model": "cnn",
    "width": 0.8,
    "batch_size": 110,
    "lr": 0.16,
    "warmup": 2,
    "held_out": 0.2,
    "threads": 1,
}


@dataclass(frozen=True)
class Demo:
    """What the story came to.

    Attributes:
        original: What was measured on the network that has memorised its digits.
        forgotten: On the one that has forgotten, with Retrain as its reference.
        verdict: What `forget` says of it, which does not know Retrain.
        beside: What the page says, beside Retrain.
        seconds: How long forgetting took.
        retraining: How long Retrain took.
        report: The page.
    """

    original: RunMetrics
    forgotten: RunMetrics
    verdict: Verdict
    beside: Verdict
    seconds: float
    retraining: float
    report: Path


def demo(out: Path, seed: int = 0, samples: int = SAMPLES, epochs: int = EPOCHS) -> Demo:
    """Run the story in the folder `out`."""
    Run.check_free(out)
    make_folder(out)
    data = noisy_digits(out, samples)
    training = {**TRAINING, "dataset": str(data), "epochs": epochs, "seed": seed}
    original = train_run(TrainConfig.parse(training), out / "original")
    settings = {
        "run": original.path,
        "random": SHARE,
        "forget_seed": seed,
        "seed": seed,
        "threads": 1,
    }
    run = forget_run(ForgetConfig.parse(settings), out / "forgotten")
    # Nobody would retrain; it is here to show what the network should be like.
    retrained = {**settings, "method": "retrain", "skip_probe": True}
    retrain = forget_run(ForgetConfig.parse(retrained), out / "retrained")
    metrics = metrics_of(run)
    compared = measured_again(metrics, evaluate_run(run.path, reference=retrain.path))
    assert compared is not None  # all parts were measured
    return Demo(
        original=metrics_of(original),
        forgotten=compared,
        verdict=verdict_of(metrics, run.info.method),
        beside=verdict_of(compared, run.info.method),
        seconds=run.info.took("forgetting"),
        retraining=retrain.info.took("forgetting"),
        report=report_run(run.path, reference=retrain.path),
    )


def noisy_digits(out: Path, samples: int) -> Path:
    """Write the digits, so noisy that a network gets many right only if it has memorised them.

    Clean digits are nearly all right whether they were trained on or not: nothing to forget.
    """
    digits = load_dataset("digits", subset=samples)
    clean, labels, test = digits.images[:, 0].numpy(), digits.labels.numpy(), digits.is_test.numpy()
    draw = np.random.default_rng(0)

    def noisy(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return (images + draw.normal(0, NOISE, images.shape)).clip(0, 255).astype(np.uint8)

    content = io.BytesIO()
    np.savez(
        content,
        x_train=noisy(clean[~test]),
        y_train=labels[~test],
        x_test=noisy(clean[test]),
        y_test=labels[test],
        crop=np.array(CROP),
    )
    path = out / "noisy-digits.npz"
    write_bytes(path, content.getvalue())
    return path
