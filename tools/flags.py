"""Lists every command, argument and flag of the command line.

    .venv/bin/python tools/flags.py > tests/cli/flags.txt

A test compares the list with that file: a flag that is added, renamed or removed is a decision, and
shows in the diff. Run this to make it, and say so in CHANGELOG.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from qunlearn.cli.main import COMMANDS, application


def listed() -> list[str]:
    """A line for each command, and one for each of its arguments and flags, by the alphabet."""
    return sorted(_all())


def _all() -> Iterator[str]:
    yield from _lines("qunlearn", typer.main.get_command(application([])), nested=False)
    for name in COMMANDS:
        group: Any = typer.main.get_command(application([name]))
        yield from _lines(f"qunlearn {name}", group.commands[name])


def _lines(words: str, command: Any, nested: bool = True) -> Iterator[str]:
    yield words
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        flags = [*parameter.opts, *parameter.secondary_opts]
        shown = "/".join(flags) if is_option else parameter.name.upper()
        yield f"{words} {shown}{' (required)' * parameter.required}"
    for name, below in getattr(command, "commands", {}).items() if nested else ():
        yield from _lines(f"{words} {name}", below)


if __name__ == "__main__":
    print("\n".join(listed()))
