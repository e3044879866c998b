"""`qunlearn reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.compare import end, print_comparison
from qunlearn.cli.output import print_json, print_text_table, say
from qunlearn.cli.settings import Json, with_settings
from qunlearn.study.reproduce import ReproduceConfig

OutFolder = Annotated[
    Path | None,
    typer.Option(help="Where runs and tables are kept; new or not.  \\[required]"),
]


@with_settings(ReproduceConfig)
def command(settings: ReproduceConfig, out: OutFolder = None, json: Json = False) -> None:
    """Make the paper's tables again, and print ours beside the paper's.

    At the small scale everything is of a size that two cores finish in hours. Finished cells are
    kept, and shared by the experiments that need them: give the same command again to resume.

    Examples:
      qunlearn reproduce main --scale small --cells cifar10 --data-dir DIR --tune 4 --out runs/paper

      qunlearn reproduce ablation --cells cifar10 --data-dir DIR --out runs/paper
      --settings-from runs/paper/cifar10-resnet18-lsq+-paper/random-10/main/table.json
    """
    from qunlearn.report import report_comparison
    from qunlearn.report.reproduced import (
        EXTRA_TABLES,
        QUANTIZERS_EXPLAINED,
        errata_words,
        quantizer_tables,
        variant_words,
    )
    from qunlearn.study.reproduce import reproduce

    assert out is not None  # with_settings has seen to it
    blocks, pages = [], []
    for block in reproduce(settings, out):
        page = report_comparison(block.folder, data=settings.data_dir)
        blocks.append(block)
        pages.append(str(page))
        if json:
            continue
        print_comparison(block.table, block.paper, block.name)
        if extra := EXTRA_TABLES.get(settings.what):
            print_text_table(extra(block))
        for sentence in errata_words(block):
            say(sentence)
        say(f"The page that shows it: {page}\n")
    if json:
        both = zip(blocks, pages, strict=True)
        print_json({"blocks": [{**block.to_json(), "page": page} for block, page in both]})
    elif settings.what == "quantizers":
        for table in quantizer_tables(blocks):
            print_text_table(table)
        say(QUANTIZERS_EXPLAINED)
    if settings.variant == "released" and not json:
        for sentence in variant_words(block.name for block in blocks):
            say(sentence)
    end(*(block.table for block in blocks))
