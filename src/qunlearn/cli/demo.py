"""`qunlearn demo`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from qunlearn.cli.compare import print_comparison
from qunlearn.cli.output import print_json, print_table, say
from qunlearn.cli.settings import Json, with_settings
from qunlearn.training.config import LARGEST_SEED, Config


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
    """See it work on embedded data, in about a minute.

    Trains a network with 4-bit weights and activations on a few noisy handwritten digits until it
    has memorised them, makes it forget a tenth of them by three methods, compares each with
    networks that were retrained without that tenth, and writes a page that shows it all.

    Examples:
      qunlearn demo

      qunlearn demo --out my-demo
    """
    from qunlearn.demo import demo
    from qunlearn.store.files import new_folder

    result = demo(settings.out or new_folder("qunlearn-demo-"), settings.seed)
    if json:
        original, report = result.original.to_json()["parts"], str(result.report)
        print_json({"original": original, "table": result.table.to_json(), "report": report})
        return
    names = {"train": "digits it was trained on", "test": "digits it never saw"}
    rows = [(name, f"{result.original.parts[part].accuracy:.1f} %") for part, name in names.items()]
    print_table(("the 4-bit network on", "accuracy"), rows)
    say("It is then made to forget a tenth of what it was trained on.")
    print_comparison(result.table)
    say(f"\nThe page that shows it: {result.report}")
