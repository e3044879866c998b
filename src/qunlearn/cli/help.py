"""How `--help` shows texts and flags: paragraphs fit the terminal; no value where none is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup


def without_value(parameters: Iterable[Any]) -> list[Any]:
    """The parameters; typer writes `<bool>` after those of its own that are only switched on."""
    shown = list(parameters)
    for parameter in shown:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return shown


def flowing(text: str | None) -> str | None:
    r"""A docstring whose paragraphs are one line each, for the terminal to wrap.

    >>> flowing("One\nparagraph.\n\nExamples:\n  one line\n  another")
    'One paragraph.\n\nExamples:\n  one line\n  another'
    """
    return text and re.sub(r"(?<=\S)\n(?=\S)", " ", text)


class Command(TyperCommand):
    """A command."""

    def __init__(self, *args: Any, help: str | None = None, **settings: Any):
        super().__init__(*args, help=flowing(help), **settings)

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and flags, `--help` among them."""
        return without_value(super().get_params(ctx))


class Group(TyperGroup):
    """A command with commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and flags, `--help` among them."""
        return without_value(super().get_params(ctx))
