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
    from qunlearn.study.check import check_folder

    found = check_folder(folder)
    wrong = {str(path): faults for path, faults in found.items() if faults}
    if json:
        print_json({"folder": str(folder), "checked": len(found), "faults": wrong})
    else:
        for faults in wrong.values():
            say("\n".join(faults))
        say(f"{len(found) - len(wrong)} of {len(found)} checked are intact.")
    if wrong:
        raise Failure(f"{str(folder)!r} is not intact.")
