"""`qunlearn reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, print_parts, say
from qunlearn.cli.settings import Json, with_settings
from qunlearn.study.scenarios import ReproduceConfig

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
    from qunlearn.report.printed import block_parts, closing_parts
    from qunlearn.study.compare import refuse_failed
    from qunlearn.study.reproduce import reproduce

    assert out is not None  # with_settings has seen to it
    blocks, pages = [], []
    for block in reproduce(settings, out):
        blocks.append(block)
        pages.append(report_comparison(block.folder, data=settings.data_dir))
        if not json:
            print_parts(block_parts(block, settings.what))
            say(f"The page that shows it: {pages[-1]}\n")
    if json:
        listed = zip(blocks, pages, strict=True)
        print_json({"blocks": [{**block.to_json(), "page": str(page)} for block, page in listed]})
    else:
        print_parts(closing_parts(settings, blocks))
    refuse_failed(*(block.table for block in blocks))
