"""`qunlearn reproduce`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from qunlearn.cli.output import print_json, print_table
from qunlearn.cli.settings import Json, with_settings
from qunlearn.study.reproduce import ReproduceConfig

OutFolder = Annotated[
    Path | None,
    typer.Option(help="Where runs and tables are kept; new or not.  [required]"),
]


@with_settings(ReproduceConfig)
def command(settings: ReproduceConfig, out: OutFolder = None, json: Json = False) -> None:
    """Make the paper's tables again, and print ours beside the paper's.

    At the small scale everything is of a size that two cores finish in hours. Finished cells are
    kept: give the same command again to go on.

    Examples:
      qunlearn reproduce main --scale small --cells cifar10 --data-dir DIR --out runs/reproduce

      qunlearn reproduce ablation --cells cifar10 --data-dir DIR --seeds 1 --out runs/reproduce
    """
    from qunlearn.study.reproduce import reproduce

    assert out is not None  # with_settings has seen to it
    blocks = reproduce(settings, out)
    if json:
        print_json({"blocks": blocks})
        return
    for block in blocks:
        print_block(block)
    if settings.variant == "released":
        print(
            "Variant: 4-bit weights with 8-bit inputs and first, last and shortcut layers in full"
        )
        print("precision, as in the same authors' earlier code.")


def print_block(block: Mapping[str, Any]) -> None:
    """Ours beside the paper's, method by method."""
    names = ("FA", "RA", "TA", "MIA", "AG")
    rows = []
    for row in block["table"]["rows"]:
        theirs = block["paper"].get(row["method"])
        rows.append(
            [
                row["method"],
                *(f"{row[name][0]:.2f}" for name in names),
                *(f"{theirs[name]:.2f}" if theirs else "" for name in names),
            ]
        )
    head = ["method", *names, *(f"paper {name}" for name in names)]
    print_table(head, rows, f"{block['block']}, {block['table']['seeds']} seed(s)")
    floor = block["table"]["noise_floor"]
    if floor:
        print(f"Noise floor of our AG: {floor['AG'][0]:.2f}.")
    for method, row in block["paper"].items():
        if row["note"]:
            print(f"Paper, {method}: {row['note']}.")
