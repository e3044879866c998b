"""`qunlearn check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json
from qunlearn.errors import Failure

Folder = Annotated[Path, typer.Argument(help="A run, or a comparison.")]


def command(folder: Folder, json: Json = False) -> None:
    """Check that a run is complete and unaltered, and name what is not.

    Reads every file, compares it with its checksum, and changes nothing. Of a comparison, all runs
    are checked. Exit code 0: intact. 1: not intact.

    Example:
      qunlearn check runs/original
    """
    from qunlearn.report.words import fault_words
    from qunlearn.study.check import check_folder

    checked = check_folder(folder)
    wrong = {str(path): list(map(fault_words, each)) for path, each in checked.items() if each}
    if json:
        print_json({"folder": str(folder), "checked": len(checked), "faults": wrong})
    else:
        for faults in wrong.values():
            say("\n".join(faults))
        say(f"{len(checked) - len(wrong)} of {len(checked)} checked are intact.")
    if wrong:
        raise Failure(f"{str(folder)!r} is not intact.")
