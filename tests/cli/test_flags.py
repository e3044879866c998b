"""The command line is frozen: adding, renaming or removing a flag is a decision."""

import runpy
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "flags.py"
LIST = Path(__file__).with_name("flags.txt")


def test_commands_and_flags_are_those_that_were_decided_on():
    now, decided = runpy.run_path(str(TOOL))["listed"](), LIST.read_text().splitlines()
    added, removed = (sorted({*a} - {*b}) for a, b in ((now, decided), (decided, now)))
    assert now == decided, (
        f"added: {added}, removed: {removed}; if that is meant, put it into CHANGELOG.md and run "
        "`.venv/bin/python tools/flags.py > tests/cli/flags.txt`."
    )
