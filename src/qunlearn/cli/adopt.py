"""`qunlearn adopt`."""

from __future__ import annotations

from qunlearn.cli.output import print_run, say
from qunlearn.cli.settings import Json, OutFolder, Resume, with_settings
from qunlearn.runs.config import AdoptConfig


@with_settings(AdoptConfig)
def command(
    settings: AdoptConfig,
    out: OutFolder = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Make a run from a model that was trained elsewhere.

    Reports the accuracy on each part. Refuses swapped lists, held-out data that looks trained on,
    and another normalisation, channel order or class order than the network was trained with.

    Examples:
      qunlearn adopt --weights w.safetensors --model resnet18 --dataset cifar10 --data-dir DIR
      --trained-on trained.csv --held-out unseen.csv --out runs/original

      qunlearn adopt --weights w.safetensors --model mypackage.nets:make_net --dataset images.npz
      --held-out unseen.csv --weight-bits 4 --act-bits 4 --epochs 5 --out runs/original

      qunlearn adopt --weights retrained.safetensors --retrain-of runs/forgotten --out runs/retrain
    """
    from qunlearn.report.words import declared_check_words, held_out_words
    from qunlearn.runs.adopt import adopt_run

    assert out is not None  # with_settings has seen to it
    run = adopt_run(settings, out, resume=resume)
    print_run(run, json, str(run.path))
    if not json:
        info = run.info
        if info.declared is not None:
            say(f"Declared as a Retrain. {declared_check_words(info.declared)}")
        elif info.held_out_check is not None:
            say(held_out_words(info.held_out_check))
