"""How `--help` shows flags: one that takes no value is shown with none."""

from __future__ import annotations

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


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and flags, `--help` among them."""
        return without_value(super().get_params(ctx))


class Group(TyperGroup):
    """A command with commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and flags, `--help` among them."""
        return without_value(super().get_params(ctx))
