"""`qunlearn demo`."""

from __future__ import annotations

from qunlearn.cli.output import print_json, print_table
from qunlearn.cli.settings import Json, with_settings
from qunlearn.training.config import DemoConfig


@with_settings(DemoConfig)
def command(settings: DemoConfig, json: Json = False) -> None:
    """See it work on embedded data, in under a minute.

    Trains a network with 4-bit weights and activations on handwritten digits, and the same network
    in full precision, and shows both.

    Example:
      qunlearn demo
    """
    from qunlearn.demo import demo

    result = demo(settings.seed)
    if json:
        print_json(result)
        return
    rows = [
        (
            name,
            f"{net['train']:.2f} %",
            f"{net['held_out']:.2f} %",
            f"{net['test']:.2f} %",
            f"{net['bytes']:,}",
            f"{net['seconds']:.1f}",
        )
        for name, net in result["networks"].items()
    ]
    head = ("network", "trained on", "held out", "test", "bytes", "seconds")
    print_table(head, rows, "Accuracy on handwritten digits")
