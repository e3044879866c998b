"""`qunlearn report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json

Folder = Annotated[Path, typer.Argument(help="A run that has forgotten, or a comparison.")]
Reference = Annotated[
    Path | None, typer.Option(help="For a run: that of Retrain on the same request.")
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Where the data is now: a folder or an .npz file; it must be the same data.",
    ),
]
Image = Annotated[
    bool,
    typer.Option(
        "--image", help="Show the image of one forgotten sample; without this, a page has none."
    ),
]


def command(
    folder: Folder,
    reference: Reference = None,
    data: Data = None,
    image: Image = False,
    json: Json = False,
) -> None:
    """Write a page that shows what a run or a comparison says.

    Writes report.html into the folder, one file that needs nothing else, and its figures as SVG and
    PNG into figures/ beside it.

    Examples:
      qunlearn report runs/table

      qunlearn report runs/forgotten --reference runs/retrain
    """
    from qunlearn.report import report_folder

    page = report_folder(folder, reference=reference, data=data, image=image)
    if json:
        print_json({"folder": str(folder), "page": str(page)})
    else:
        say(f"The report is in {page}.")
