"""Reference pages made from the code when the site is built.

A page holds a line `<!-- generated: NAME -->`; a function below makes the text that replaces it, so
that commands, settings and constants on the site are those of the code.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer.main
from pydantic import BaseModel

if TYPE_CHECKING:  # tests read this without the extra `docs`
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]


def cell(text: object) -> str:
    """Text that may stand in a cell of a table."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def commands() -> str:
    """Every command with its arguments and flags, as `--help` has them."""
    from qunlearn.cli.main import COMMANDS, application

    made: list[str] = []
    for name in COMMANDS:
        group: Any = typer.main.get_command(application([name]))
        made += command(f"qunlearn {name}", group.commands[name], COMMANDS[name])
    return "\n\n".join(made)


def command(words: str, found: Any, summary: str) -> Iterator[str]:
    """One command, and those below it."""
    import click

    yield f"{'#' * (words.count(' ') + 1)} {words}"
    pieces = " ".join(found.collect_usage_pieces(click.Context(found)))
    yield f"    {words} " + re.sub(r"\{(\w+)\}", lambda piece: piece[1].upper(), pieces)
    yield described(found.help or summary)
    rows = []
    for parameter in found.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        flags = [*parameter.opts, *parameter.secondary_opts]
        is_option = parameter.param_type_name == "option"
        shown = ", ".join(f"`{flag}`" for flag in flags) if is_option else f"`{parameter.name}`"
        rows.append((shown, getattr(parameter, "help", "") or "", default(parameter)))
    if rows:
        yield table(("argument or flag", "what it does", "default"), rows)
    for name, below in getattr(found, "commands", {}).items():
        yield from command(f"{words} {name}", below, below.help or "")


def described(text: str) -> str:
    """The text of `--help`, with its indented examples as code."""
    lines = [f"  {line}" if line.startswith("  ") else line for line in text.strip().splitlines()]
    return re.sub(r"(?m)^(Examples?:)\n", r"\1\n\n", "\n".join(lines))


def default(parameter: Any) -> str:
    """The default of a flag, where it has one that can be shown."""
    if parameter.required:
        return "required"
    value = parameter.default
    shown = value is not None and not callable(value) and value not in ((), [], "", False)
    return f"`{value}`" if shown and "Sentinel" not in repr(value) else ""


def settings() -> str:
    """The settings of each command that takes `--config`, and of each method."""
    from qunlearn.cli.main import COMMANDS, application
    from qunlearn.methods.find import all_methods

    made = ["## Commands"]
    for name in COMMANDS:
        group: Any = typer.main.get_command(application([name]))
        for words, config in configured(name, group.commands[name]):
            made += [f"### {words}", setting_table(config)]
    made.append("## Methods")
    for method in all_methods():
        made += [f"### {method.name}", setting_table(method.config)]
    return "\n\n".join(made)


def configured(words: str, found: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The settings that a command, and those below it, get as their first parameter."""
    if found.callback:
        parameters = inspect.signature(inspect.unwrap(found.callback), eval_str=True).parameters
        first = next((p.annotation for p in parameters.values()), None)
        if isinstance(first, type) and issubclass(first, BaseModel):
            yield words, first
    for name, below in getattr(found, "commands", {}).items():
        yield from configured(f"{words} {name}", below)


def setting_table(config: type[BaseModel]) -> str:
    """One row for each setting: its name, kind, default, and what it does."""
    rows = []
    for name, field in config.model_fields.items():
        required = field.is_required()
        shown = "required" if required else f"`{field.get_default(call_default_factory=True)!r}`"
        rows.append((f"`{name}`", kind(field.annotation), shown, field.description or ""))
    return table(("setting", "kind", "default", "what it does"), rows)


def kind(annotation: object) -> str:
    """A type as a reader knows it."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"\b(?:typing|pathlib|qunlearn[\w.]*|collections\.abc|datetime)\.", "", text)
    return f"`{text}`"


def constants() -> str:
    """The constants of the default method."""
    from qunlearn.methods.constants import table as made

    return made()


def standing() -> str:
    """The table of benchmarks/standing.py, from the JSON of the studies."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from standing import main
    finally:
        sys.path.pop(0)
    with redirect_stdout(StringIO()) as out:
        main()
    return out.getvalue()


def findings() -> str:
    """The typed findings that `--json`, `metrics.json` and `history.jsonl` hold, field by field."""
    from qunlearn.audit.row import AuditRow, Figure
    from qunlearn.methods.calibration import Calibration
    from qunlearn.methods.relearn import Relearning
    from qunlearn.metrics.scores import PartScores, Scores
    from qunlearn.report.verdict import Verdict
    from qunlearn.runs.metrics import RunMetrics
    from qunlearn.store.history import ConflictRecord, Epoch

    kinds = (
        *(RunMetrics, Scores, PartScores, Calibration, Relearning, Verdict, AuditRow, Figure),
        *(Epoch, ConflictRecord),
    )
    made: list[str] = []
    for found in kinds:
        hints, meaning = get_type_hints(found), attributes(found)
        rows: list[tuple[object, ...]] = [
            (f"`{field.name}`", kind(hints[field.name]), meaning.get(field.name, ""))
            for field in fields(found)
        ]
        summary = (found.__doc__ or "").strip().splitlines()[0]
        made += [f"## {found.__name__}", summary, table(("field", "kind", "what it is"), rows)]
    return "\n\n".join(made)


def attributes(found: type) -> dict[str, str]:
    """What the docstrings of a class, and of those it extends, say about each attribute."""
    told: dict[str, str] = {}
    for parent in reversed(found.__mro__):
        _, _, listed = inspect.cleandoc(parent.__doc__ or "").partition("Attributes:\n")
        for name, text in re.findall(r"(?m)^    (\w+): (.+(?:\n     +\S.*)*)", listed):
            told[name] = " ".join(text.split())
    return told


MADE: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "constants": constants,
    "standing": standing,
    "findings": findings,
}


def the_others(name: str, text: str) -> str:
    """The pages of a part that its table of contents does not name, in order."""
    folder = (ROOT / "docs" / name).parent
    named = [*text.splitlines(), "index"]
    return "\n".join(sorted(p.stem for p in folder.glob("*.md") if p.stem not in named))


def read(app: Sphinx, name: str, content: list[str]) -> None:
    """Called for each page as it is read; fills in what is made from the code."""
    content[0] = content[0].replace("<!-- the others -->", the_others(name, content[0]))
    content[0] = re.sub(
        r"(?m)^<!-- generated: ([\w-]+) -->$", lambda match: MADE[match[1]](), content[0]
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx when to call it."""
    os.environ.setdefault("COLUMNS", "100")
    app.connect("source-read", read)
    return {"parallel_read_safe": True}
