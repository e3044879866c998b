"""`qunlearn reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.compare import end, print_comparison
from qunlearn.cli.output import print_json, print_table, say
from qunlearn.cli.settings import Json, with_settings
from qunlearn.study.reproduce import Block, ReproduceConfig

OutFolder = Annotated[
    Path | None,
    typer.Option(help="Where runs and tables are kept; new or not.  \\[required]"),
]


@with_settings(ReproduceConfig)
def command(settings: ReproduceConfig, out: OutFolder = None, json: Json = False) -> None:
    """Make the paper's tables again, and print ours beside the paper's.

    At the small scale everything is of a size that two cores finish in hours. Finished cells are
    kept, and shared by the experiments that need them: give the same command again to go on.

    Examples:
      qunlearn reproduce main --scale small --cells cifar10 --data-dir DIR --tune 4 --out runs/paper

      qunlearn reproduce ablation --cells cifar10 --data-dir DIR --out runs/paper
      --settings-from runs/paper/cifar10-resnet18-lsq+-paper/random-10/main/table.json
    """
    from qunlearn.report import report_comparison
    from qunlearn.study.reproduce import reproduce

    assert out is not None  # with_settings has seen to it
    show = {"runtime": print_runtime, "entropy": print_entropy}.get(settings.what)
    blocks, pages = [], []
    for block in reproduce(settings, out):
        page = report_comparison(block.folder, data=settings.data_dir)
        blocks.append(block)
        pages.append(str(page))
        if json:
            continue
        print_comparison(block.table, block.paper, block.name)
        if show:
            show(block)
        print_errata(block)
        say(f"The page that shows it: {page}\n")
    if json:
        both = zip(blocks, pages, strict=True)
        print_json({"blocks": [{**block.to_json(), "page": page} for block, page in both]})
    elif settings.what == "quantizers":
        print_quantizers(blocks)
    if settings.variant == "released" and not json:
        print_variant(blocks)
    end(*(block.table for block in blocks))


def print_variant(blocks: Sequence[Block]) -> None:
    """What is other in the authors' earlier code."""
    for mobile in sorted({"mobilenetv2" in block.name for block in blocks}):
        said = (
            "MobileNetV2 at half width, with 2-bit weights and inputs in full precision"
            if mobile
            else "ResNet-18 with 4-bit weights and 8-bit inputs, its shortcuts in full precision"
        )
        say(f"Variant: {said}; LSQ, and first and last layers in full precision, as in the same")
        say("authors' earlier code.")


def print_errata(block: Block) -> None:
    """What contradicts itself in the paper, or is not said there, of what is shown."""
    shown = {row.method for row in block.table.rows}
    for method, row in block.paper.items():
        if method in shown and row.note:
            say(f"The paper, {method}, the table: {row.note}.")
    for stated in block.stated:
        if stated.note:
            say(f"The paper, {stated.method}, {stated.figure}: {stated.note}.")


def print_runtime(block: Block) -> None:
    """How long each method takes."""
    from qunlearn.report.rows import interval, runtime

    theirs = {row.method: row.value for row in block.stated}
    rows = []
    for row in block.table.rows:
        minutes = theirs.get(row.method)
        paper = (
            [f"{minutes:g} min", f"{100 * minutes / theirs['retrain']:.1f} %"] if minutes else []
        )
        rows.append([row.method, interval(row.seconds, 1), runtime(row), *(paper or ["", ""])])
    print_table(["method", "seconds", "of Retrain's", "the paper", "of its Retrain's"], rows)


def print_entropy(block: Block) -> None:
    """How unsure each method leaves the network of what it forgot, and of what it never saw."""
    from qunlearn.report.rows import interval

    parts = {"forget": "forgotten", "held_out": "held out", "test": "test"}
    before = block.table.original.parts
    theirs = {row.method: f"{row.value:.3f}" for row in block.stated}
    rows = [["before forgetting", *(f"{before[part].entropy:.3f}" for part in parts), ""]]
    rows += [
        [
            row.method,
            *(interval(row.entropy[part], 3) for part in parts),
            theirs.get(row.method, ""),
        ]
        for row in block.table.rows
    ]
    print_table(["entropy, in nats", *parts.values(), "the paper, forgotten"], rows)


def print_quantizers(blocks: Sequence[Block]) -> None:
    """AG by quantizer, and how far OEU's is below Q-MUL's."""
    for dataset in dict.fromkeys(block.dataset for block in blocks):
        own = [block for block in blocks if block.dataset == dataset]
        columns = [_column(block) for block in own]
        names = dict.fromkeys(name for column in columns for name in column)
        rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
        print_table([f"AG on {dataset}", *(block.quantizer for block in own)], rows)
    say("none: full precision. In brackets: the paper's, where it says.")


def _column(block: Block) -> dict[str, str]:
    """The AG of each method with one quantizer, with the paper's in brackets."""
    from qunlearn.report.rows import interval

    gaps = {row.method: row.AG for row in block.table.methods}
    shown = {name: interval(gap) for name, gap in gaps.items()}
    if "oeu" in gaps and "qmul" in gaps and gaps["qmul"][0]:
        shown["oeu below qmul"] = f"{100 * (1 - gaps['oeu'][0] / gaps['qmul'][0]):.1f} %"
    theirs = {name: f"{row.AG:.2f}" for name, row in block.paper.items()}
    for row in block.stated:
        below = row.figure != "AG"
        theirs["oeu below qmul" if below else row.method] = (
            f"{row.value:.1f} %" if below else f"{row.value:.2f}"
        )
    return {name: f"{v} [{theirs[name]}]" if name in theirs else v for name, v in shown.items()}
