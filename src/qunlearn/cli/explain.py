"""`qunlearn explain`."""

from __future__ import annotations

import shutil

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json, RunFolder


def command(run: RunFolder, json: Json = False) -> None:
    """Show where forgetting and retaining were in conflict.

    Draws the layers against the steps, darker where the two gradients pointed further apart, and
    says it in words.

    Example:
      qunlearn explain runs/forgotten
    """
    from qunlearn.report.shades import LEGEND, shaded
    from qunlearn.report.words import conflict_words
    from qunlearn.runs.explain import conflict_of

    conflict = conflict_of(run)
    words = conflict_words(conflict)
    if json:
        print_json({"run": str(run), **conflict.to_dict(), "words": words})
        return
    say(f"{words}\n")
    for line in shaded(conflict, shutil.get_terminal_size().columns):
        say(line)
    say(f"\n{LEGEND}")
