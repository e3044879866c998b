"""`qunlearn train`."""

from __future__ import annotations

from qunlearn.cli.output import print_run
from qunlearn.cli.settings import Json, OutFolder, Resume, with_settings
from qunlearn.runs.config import TrainConfig


@with_settings(TrainConfig)
def command(
    settings: TrainConfig,
    out: OutFolder = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Train a low-bit network and save it in a run folder.

    Examples:
      qunlearn train --width 0.25 --epochs 10 --batch-size 64 --out runs/digits

      qunlearn train --dataset cifar10 --data-dir DIR --subset 5000 --model resnet18 --width 0.25
      --weight-bits 4 --act-bits 4 --quantizer lsq+ --epochs 60 --out runs/original

      qunlearn train --config runs/original/config.toml --seed 1 --out runs/again

      qunlearn train --resume --out runs/original
    """
    from qunlearn.runs.train import train_run

    assert out is not None  # with_settings has seen to it
    run = train_run(settings, out, resume=resume)
    print_run(run, json, f"{run.path} ({run.info.took('training'):.0f} s)")
