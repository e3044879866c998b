"""`qunlearn compare`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from qunlearn.cli.output import print_json, print_table
from qunlearn.cli.settings import Json, with_settings
from qunlearn.study.config import CompareConfig

OutFolder = Annotated[
    Any, typer.Option(help="The folder of the comparison; new, or one to go on with.  [required]")
]


@with_settings(CompareConfig)
def command(settings: CompareConfig, out: OutFolder = None, json: Json = False) -> None:
    """Compare methods of forgetting with Retrain, over several seeds.

    Makes what is missing (a Retrain for each seed, then every method), and prints the table. If it
    is interrupted, give the same command again: it goes on where it was.

    Examples:
      qunlearn compare runs/original --random 0.1 --methods all --seeds 3 --out runs/table

      qunlearn compare runs/original --class 3 --methods oeu,ft --tune 8 --select oracle
      --workers 2 --threads 1 --out runs/classes
    """
    from qunlearn.report import report_comparison
    from qunlearn.study.compare import compare_run

    table = compare_run(settings, out)
    page = report_comparison(out, data_dir=settings.data_dir)
    if json:
        print_json(table)
    else:
        print_comparison(table)
        print(f"The page that shows it: {page}")


def print_comparison(table: Mapping[str, Any]) -> None:
    """The paper's table: each figure with its gap to Retrain."""
    head = ["method", "FA", "RA", "TA", "MIA", "AG", "runtime", "trials"]
    rows = [
        [
            row["method"],
            *(_with_gap(row, score) for score in ("FA", "RA", "TA", "MIA")),
            _mean(row["AG"]) + {"best": " *", "runner-up": " +"}.get(row.get("place", ""), ""),
            f"{row['runtime'][0]:.1f} %",
            f"{row['trials']}",
        ]
        for row in table["rows"]
    ]
    print_table(head, rows)
    print(f"{table['seeds']} seed(s); mean ± half the 95 % interval (gap to Retrain).", end=" ")
    print("AG: the mean gap; * best, + runner-up. Runtime: of Retrain's.")
    floor = table["noise_floor"]
    if floor:
        print(
            f"Noise floor: Retrains of different seeds have an AG of {_mean(floor['AG'])} among "
            "each other; below that no method can be told from Retrain."
        )
    else:
        print("With a single seed there is no noise floor; use --seeds 2 or more.")
    counts = {row["trials"] for row in table["rows"] if row["method"] != "retrain"}
    if len(counts) > 1:
        print("Careful: methods had different numbers of trials, so this comparison is not even.")
    if table["select"]:
        looked = "at Retrain (oracle)" if table["select"] == "oracle" else "at held-out data only"
        print(f"Settings were chosen on seed 0 by looking {looked}.")
    print_beside(table)


def print_beside(table: Mapping[str, Any]) -> None:
    """What stands beside the four figures: how alike the forgotten samples' predictions are."""
    head = ["on what was forgotten", "entropy", "as Retrain", "divergence"]
    judged = any("lira" in row for row in table["rows"])
    names = ("AUC", "AUC of |z|", "TPR at 1 % FPR")
    rows = []
    for row in table["rows"]:
        line = [row["method"], _mean(row["entropy"]["forget"], 3)]
        alike = row["method"] != "retrain"
        line += [f"{row['agreement']['forget'][0]:.1f} %" if alike else ""]
        line += [_mean(row["divergence"]["forget"], 4) if alike else ""]
        line += [_mean(row["lira"][n], 3) if "lira" in row else "" for n in names if judged]
        rows.append(line)
    print_table([*head, *(f"LiRA {n}" for n in names if judged)], rows)
    if judged:
        print(
            "LiRA: 0.5 is Retrain's. AUC above: still known; below: made surer to be unknown than "
            "unseen data is. AUC of |z|: out in either direction."
        )


def _with_gap(row: Mapping[str, Any], score: str) -> str:
    gap = row["gaps"][score][0]
    return _mean(row[score]) + (f" ({gap:.2f})" if row["method"] != "retrain" else "")


def _mean(value: list[float | None], digits: int = 2) -> str:
    mean, half = value
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if half is not None else "")
