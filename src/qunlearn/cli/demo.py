"""`qunlearn demo`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from pydantic import Field

from qunlearn.cli.output import print_json, print_text_table, print_verdict, say
from qunlearn.cli.settings import Json, with_settings
from qunlearn.training.config import LARGEST_SEED, Config

NEXT = (
    "qunlearn init mine.toml --dataset FOLDER",
    "qunlearn train --config mine.toml --out runs/original",
    "qunlearn forget runs/original --ids ids.csv --out runs/forgotten",
)
"""What to try next; `init` names further commands."""


class DemoConfig(Config):
    """What of the demo can be chosen."""

    out: Path | None = Field(
        None, description="A new folder for its runs and its page; a temporary one by default."
    )
    seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the weights, the order and the augmentation."
    )


@with_settings(DemoConfig)
def command(settings: DemoConfig, json: Json = False) -> None:
    """See a 4-bit network forget, and the measurements that show it, in under a minute.

    Trains a network with 4-bit weights and activations on noisy handwritten digits until it has
    memorised them, makes it forget a fifth, and says whether it did. Then retrains a network
    without that fifth, to show what a network that never saw it is like, and writes a page.

    Examples:
      qunlearn demo

      qunlearn demo --out my-demo
    """
    from qunlearn.demo import demo
    from qunlearn.report.scores import demo_request_words, original_table, story_table, time_words
    from qunlearn.store.files import new_folder

    result = demo(settings.out or new_folder("qunlearn-demo-"), settings.seed)
    forgotten = result.forgotten
    if json:
        print_json(
            {
                "original": result.original.to_json()["parts"],
                "forgotten": forgotten.to_json(),
                "verdict": asdict(result.verdict),
                "beside": asdict(result.beside),
                "seconds": {"forgetting": result.seconds, "retraining": result.retraining},
                "report": str(result.report),
            }
        )
        return
    print_text_table(original_table(result.original))
    say(f"{demo_request_words(forgotten)}\n")
    print_verdict(replace(forgotten, reference=None), result.verdict)
    say(f"\n{time_words(result.seconds, result.retraining)} A retrained network is the reference:")
    print_text_table(story_table(forgotten))
    say(f"Did it forget, judged by that network? {result.beside.answer}")
    say(f"The page that shows it: {result.report}\n")
    say("To try it on your own data:")
    for line in NEXT:
        say(f"  {line}")
