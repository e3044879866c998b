"""`qunlearn demo`."""

from __future__ import annotations

from qunlearn.cli.compare import print_comparison
from qunlearn.cli.output import print_json, print_table
from qunlearn.cli.settings import Json, with_settings
from qunlearn.training.config import DemoConfig


@with_settings(DemoConfig)
def command(settings: DemoConfig, json: Json = False) -> None:
    """See it work on embedded data, in about a minute.

    Trains a network with 4-bit weights and activations on a few noisy handwritten digits until it
    knows them by heart, makes it forget a tenth of them by three methods, compares each with
    networks that were retrained without that tenth, and writes a page that shows it all.

    Examples:
      qunlearn demo

      qunlearn demo --out my-demo
    """
    from qunlearn.demo import demo
    from qunlearn.store.files import new_folder

    result = demo(settings.out or new_folder("qunlearn-demo-"), settings.seed)
    if json:
        print_json(result)
        return
    names = {"train": "digits it was trained on", "test": "digits it never saw"}
    rows = [(name, f"{result['original'][part]['accuracy']:.1f} %") for part, name in names.items()]
    print_table(("the 4-bit network on", "accuracy"), rows)
    print("It is then made to forget a tenth of what it was trained on.")
    print_comparison(result["table"])
    print(f"\nThe page that shows it: {result['report']}")
