"""The story on embedded data: train with 4 bits, forget a tenth, compare with Retrain, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qunlearn.report import report_comparison
from qunlearn.study.compare import compare_run
from qunlearn.study.config import CompareConfig
from qunlearn.training.config import TrainConfig
from qunlearn.training.train import train_run

TRAINING = {
    "dataset": "digits",
    "subset": 200,  # so few that the network learns them by heart, and there is something to forget
    "model": "cnn",
    "epochs": 40,
    "batch_size": 30,
    "lr": 0.1,
    "warmup": 2,
    "threads": 1,
}
METHODS = "ft,rl,oeu"


def demo(out: Path, seed: int = 0, training: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run the story in the folder `out`; the original's accuracies, the table, the page."""
    original = train_run(
        TrainConfig.parse({**TRAINING, **(training or {}), "seed": seed}), out / "original"
    )
    asked = {"run": original.path, "random": 0.1, "forget_seed": seed, "methods": METHODS}
    config = CompareConfig.parse({**asked, "seeds": 3, "threads": 1})
    table = compare_run(config, out / "digits")
    return {
        "original": original.metrics["parts"],
        "table": table,
        "report": str(report_comparison(out / "digits")),
    }
