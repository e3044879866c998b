"""`qunlearn methods`."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, print_parts, say_error
from qunlearn.cli.settings import Json

Name = Annotated[str | None, typer.Argument(help="One method, with what each setting means.")]


def command(name: Name = None, json: Json = False) -> None:
    """List the methods of forgetting, with their settings.

    Examples:
      qunlearn methods

      qunlearn methods calibrated
    """
    from qunlearn.methods import all_methods, find_method
    from qunlearn.report.methods import method_parts, method_values, methods_parts

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = [find_method(name)] if name else all_methods()
    for warning in caught:
        say_error(warning.message)
    if json:
        print_json({"methods": [method_values(method) for method in chosen]})
    else:
        print_parts(method_parts(chosen[0]) if name else methods_parts(chosen))
