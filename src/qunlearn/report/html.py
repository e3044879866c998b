"""Pages from the templates of this package: whatever is not marked as HTML already is escaped."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from qunlearn.metrics.gap import SCORES
from qunlearn.parts import part_name


def render(template: str, **content: object) -> str:
    """The page that a template makes of its content; a name it lacks is an error."""
    pages = Environment(
        loader=PackageLoader("qunlearn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=unbroken,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.globals["SCORES"] = list(SCORES)
    pages.filters |= {"fixed": fixed, "figures": figures, "counted": counted}
    pages.filters["part_name"] = part_name
    return pages.get_template(template).render(content)


def unbroken(value: object) -> str:
    r"""A value as text in which a number stays with its percent sign.

    >>> unbroken("5 %")
    '5\xa0%'
    """
    return value if isinstance(value, Markup) else str(value).replace(" %", "\N{NO-BREAK SPACE}%")


def fixed(value: float, digits: int = 2) -> str:
    """A number with so many decimals.

    >>> fixed(1.005), fixed(99.96, 1)
    ('1.00', '100.0')
    """
    return f"{value:.{digits}f}"


def figures(scores: Mapping[str, float]) -> list[str]:
    """The four figures as cells of a table."""
    return [fixed(scores[name]) for name in SCORES]


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "seed"), counted(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
