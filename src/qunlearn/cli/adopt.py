"""`qunlearn adopt`."""

from __future__ import annotations

from qunlearn.cli.output import print_run
from qunlearn.cli.settings import Json, OutFolder, Resume, with_settings
from qunlearn.training.config import AdoptConfig


@with_settings(AdoptConfig)
def command(
    settings: AdoptConfig,
    out: OutFolder = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Make a run from a model that was trained elsewhere.

    Reports the accuracy on each part, and refuses when the data that it is told was never trained
    on looks as if it had been.

    Examples:
      qunlearn adopt --weights w.safetensors --model resnet18 --dataset cifar10 --data-dir DIR
      --trained-on trained.csv --held-out unseen.csv --out runs/original

      qunlearn adopt --weights w.safetensors --model mypackage.nets:make_net --dataset images.npz
      --held-out unseen.csv --weight-bits 4 --act-bits 4 --epochs 5 --out runs/original
    """
    from qunlearn.training.adopt import adopt_run

    assert out is not None  # with_settings has seen to it
    run = adopt_run(settings, out, resume=resume)
    print_run(run, json, str(run.path))
    if not json:
        print(run.info["held_out_check"])
