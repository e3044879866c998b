"""Methods of forgetting and their settings, for the terminal and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from qunlearn.methods import Method
from qunlearn.methods.base import SgdStepConfig
from qunlearn.report.tables import TextTable


@dataclass(frozen=True)
class Setting:
    """A setting of a method.

    Attributes:
        name: Its name.
        default: Its default; None if the method chooses it.
        about: What it means.
        choices: What it can be set to, if that is one of a few words.
        searched: Where a search looks for it, in words; empty if it is not searched for.
    """

    name: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()
    searched: str = ""


def settings_of(method: Method) -> list[Setting]:
    """A method's settings, in order."""
    search = method.config.search
    return [
        Setting(
            name,
            field.default,
            field.description or "",
            choices_of(field.annotation),
            str(search.get(name, "")),
        )
        for name, field in method.config.model_fields.items()
    ]


def choices_of(annotation: Any) -> tuple[str, ...]:
    """What a setting can be chosen from, if it is one of a few words.

    >>> choices_of(Literal["layer", "tensor"]), choices_of(float)
    (('layer', 'tensor'), ())
    """
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def methods_parts(methods: Sequence[Method]) -> Iterator[str]:
    """A paragraph for each method."""
    for method in methods:
        settings = settings_of(method)
        searched = "; ".join(f"{each.name} {each.searched}" for each in settings if each.searched)
        yield "\n".join(
            (
                method.name,
                f"  {method.summary}",
                f"  settings: {', '.join(each.name for each in settings)}",
                f"  searched: {searched or 'nothing'}",
                f"  source:   {method.source}",
            )
        )
    yield "\nqunlearn methods NAME says what each setting means."


def method_parts(method: Method) -> Iterator[str | TextTable]:
    """One method: a table of its settings, and which of them follow the network."""
    yield f"{method.name}: {method.summary}\nSource: {method.source}\n"
    settings = settings_of(method)
    rows = [
        (
            each.name if each.default is None else f"{each.name} = {each.default}",
            each.about + (f" [{' | '.join(each.choices)}]" if each.choices else ""),
            each.searched,
        )
        for each in settings
    ]
    yield TextTable(("setting", "meaning", "searched"), rows, left=2)
    if issubclass(method.config, SgdStepConfig):
        follow = [each.name for each in settings if each.name in method.config.inherits]
        yield f"{', '.join(follow[:-1])} and {follow[-1]} follow the run that forgets."


def method_values(method: Method) -> dict[str, object]:
    """A method as plain values, for `--json`."""
    settings: dict[str, object] = {}
    for each in settings_of(method):
        entry = {"default": each.default, "about": each.about}
        if each.choices:
            entry["choices"] = list(each.choices)
        if (limits := method.config.search.get(each.name)) is not None:
            entry |= {"search": [limits.low, limits.high], "log": limits.log}
        settings[each.name] = entry
    named = {"name": method.name, "summary": method.summary, "source": method.source}
    return {**named, "settings": settings}
