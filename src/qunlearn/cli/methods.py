"""`qunlearn methods`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from qunlearn.cli.output import print_json, say, say_error
from qunlearn.cli.settings import Json

if TYPE_CHECKING:
    from qunlearn.methods import Method

Name = Annotated[str | None, typer.Argument(help="One method, with what each setting means.")]


def command(name: Name = None, json: Json = False) -> None:
    """List the methods of forgetting, with their settings.

    Examples:
      qunlearn methods

      qunlearn methods calibrated
    """
    from qunlearn.methods import all_methods, find_method

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chosen = [find_method(name)] if name else all_methods()
    for warning in caught:
        say_error(warning.message)
    if json:
        print_json({"methods": [described(method) for method in chosen]})
    elif name:
        print_one(chosen[0])
    else:
        print_all(chosen)


def described(method: Method) -> dict[str, object]:
    """A method as plain values."""
    searched = method.config.search
    settings = {
        name: {
            "default": field.default,
            "about": field.description,
            **({"choices": choices} if (choices := list(choices_of(field.annotation))) else {}),
            **(
                {"search": [searched[name].low, searched[name].high], "log": searched[name].log}
                if name in searched
                else {}
            ),
        }
        for name, field in method.config.model_fields.items()
    }
    return {
        "name": method.name,
        "summary": method.summary,
        "source": method.source,
        "settings": settings,
    }


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """What a setting can be chosen from, if it is one of a few words."""
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def print_all(chosen: list[Method]) -> None:
    """One paragraph for each method."""
    for method in chosen:
        say(method.name)
        say(f"  {method.summary}")
        say(f"  settings: {', '.join(method.config.model_fields)}")
        searched = [f"{name} {where}" for name, where in method.config.search.items()]
        say(f"  searched: {'; '.join(searched) or 'nothing'}")
        say(f"  source:   {method.source}")
    say("\nqunlearn methods NAME says what each setting means.")


def print_one(method: Method) -> None:
    """A table of a method's settings."""
    from qunlearn.cli.output import print_table
    from qunlearn.methods.base import SgdStepConfig

    say(f"{method.name}: {method.summary}\nSource: {method.source}\n")
    searched = {name: str(where) for name, where in method.config.search.items()}
    rows = [
        (
            name if field.default is None else f"{name} = {field.default}",
            (field.description or "")
            + "".join(f" [{' | '.join(c)}]" for c in [choices_of(field.annotation)] if c),
            searched.get(name, ""),
        )
        for name, field in method.config.model_fields.items()
    ]
    print_table(("setting", "meaning", "searched"), rows, left=2)
    if issubclass(method.config, SgdStepConfig):
        follow = [name for name in method.config.model_fields if name in method.config.inherits]
        say(f"{', '.join(follow[:-1])} and {follow[-1]} follow the run that forgets.")
