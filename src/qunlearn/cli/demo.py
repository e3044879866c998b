"""`qunlearn demo`."""

from __future__ import annotations

from qunlearn.cli.output import part_name, print_json, print_table
from qunlearn.cli.settings import Json, with_settings
from qunlearn.training.config import DemoConfig


@with_settings(DemoConfig)
def command(settings: DemoConfig, json: Json = False) -> None:
    """See it work on embedded data, in under a minute.

    Trains a network with 4-bit weights and activations on handwritten digits beside the same
    network in full precision, then makes the 4-bit one forget a digit.

    Example:
      qunlearn demo
    """
    from qunlearn.demo import demo

    result = demo(settings.seed)
    if json:
        print_json(result)
        return
    parts = ("train", "held_out", "test")
    rows = [
        (
            name,
            *(f"{net[part]:.2f} %" for part in parts),
            f"{net['bytes']:,}",
            f"{net['seconds']:.1f}",
        )
        for name, net in result["networks"].items()
    ]
    head = ("network", *map(part_name, parts), "bytes", "seconds")
    print_table(head, rows, "Accuracy on handwritten digits")

    digit = result["forgotten"]
    measured = ("forget", "test_forgotten", "retain", "test")
    rows = [
        (name, *(f"{state[part]:.2f} %" for part in measured))
        for name, state in result["states"].items()
    ]
    head = ("4 bits", f"its {digit}s", f"unseen {digit}s", "the rest", "unseen rest")
    print_table(head, rows, f"Forgetting the digit {digit} ({result['seconds']:.1f} s)")
    print("Next: qunlearn train, then qunlearn forget; see qunlearn --help.")
