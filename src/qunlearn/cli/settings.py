"""Options made from settings: every setting is a flag, and may stand in a TOML file instead."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from qunlearn.errors import Failure, UserError, unknown
from qunlearn.store import toml
from qunlearn.store.files import read
from qunlearn.training.config import ComputeConfig, Config

C = TypeVar("C", bound=Config)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with any of these settings; flags win.")
]
Json = Annotated[
    bool, typer.Option("--json", metavar="", help="Print the result as JSON, for machines.")
]
OutFolder = Annotated[
    Path | None, typer.Option(help="The run folder to write; new or empty.  \\[required]")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        metavar="",
        help="Resume what was interrupted in --out; settings are read from it.",
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="The run folder.")]


def with_settings(kind: type[C]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting of `kind`, and hand it the checked settings.

    The command's first parameter receives them; its other parameters are options of its own.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @functools.wraps(command)
        def called(**arguments: Any) -> None:
            file: Path | None = arguments.pop("config")
            names = [*kind.model_fields, *(p.name for p in options)]
            begun = bool(arguments.get("resume")) and file is None
            if begun:
                file = interrupted(arguments, kind)
            written = settings_in(file, names, kind, begun) if file else {}
            written.pop("download", None)  # what a file says does not reach the network
            if begun:
                written.pop("cache_dir", None)  # nor does a run decide where else is written
            # A flag that was given wins over the file, which wins over the default.
            both = kind.joined(written, _set(arguments))
            _refuse_code_in(file, {k: v for k, v in written.items() if not arguments.get(k)})
            _refuse_places_in(file, {k: v for k, v in written.items() if not arguments.get(k)})
            values = {k: v for k, v in both.items() if k in kind.model_fields}
            others = {p.name: arguments[p.name] or written.get(p.name, p.default) for p in options}
            settings = kind.parse(values)
            if isinstance(settings, ComputeConfig):
                settings = _on_nodes(settings)
            if "out" in others:
                out = others["out"] or getattr(settings, "usual_out", None)
                if not out:
                    raise UserError("The setting 'out' is missing; give it with --out.")
                others["out"] = Path(str(out))
            try:
                command(settings, **others)
            except KeyboardInterrupt:
                file = Path(str(others.get("out") or "")) / kind.file_name
                if "resume" not in others or not file.is_file():
                    raise
                name = command.__module__.rpartition(".")[2]
                words = shlex.join(["qunlearn", name, "--resume", "--out", str(file.parent)])
                raise Failure(f"Interrupted; resume with `{words}`.") from None

        file = inspect.Parameter(
            "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile
        )
        flags = [_flag(name, kind) for name in _in_order(kind) if not _extra(kind, name, "hidden")]
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options] + [file, *flags]
        )
        called.__annotations__ = {p.name: p.annotation for p in [*options, file, *flags]}
        return called

    return decorate


def _on_nodes(settings: Any) -> Any:
    from qunlearn.training.devices import on_nodes  # which takes a second to load

    return on_nodes(settings)


def interrupted(arguments: Mapping[str, object], kind: type[Config]) -> Path | None:
    """The settings of the run to resume; None if it must be begun with those given."""
    if not arguments["out"]:
        raise UserError("--resume must know what to resume; name its folder with --out.")
    file = Path(str(arguments["out"])) / kind.file_name
    if file.is_file():
        return file
    if _set({name: value for name, value in arguments.items() if name in kind.model_fields}):
        return None  # it ended before it had begun
    raise UserError(
        f"There is nothing to resume in {str(arguments['out'])!r}; check the path, or leave "
        "--resume out."
    )


def _refuse_code_in(file: Path | None, written: Mapping[str, object]) -> None:
    """A file never decides which code is run: `package.module:name` has to be typed."""
    for name in ("model", "method", "methods"):
        named = str(written.get(name, ""))
        if name == "methods":  # whose variants have settings in brackets
            named = re.sub(r"\[.*?\]", "", named)
        if ":" in named:
            raise UserError(
                f"The file {str(file)!r} asks to run code of your own, {name} = {written[name]!r}; "
                f"to allow it, say so with --{name} {written[name]}."
            )


def _refuse_places_in(file: Path | None, written: Mapping[str, object]) -> None:
    """A file never decides who is connected to: whoever answers there can run code here."""
    for name in ("executor", "address"):
        if name in written:
            raise UserError(
                f"The file {str(file)!r} asks to make cells elsewhere, {name} = "
                f"{written[name]!r}; to allow it, say so with --{name} {written[name]}."
            )


def settings_in(
    file: Path, names: list[str], kind: type[Config], begun: bool = False
) -> dict[str, object]:
    """The settings in a TOML file, or in what was `begun`; names may be spelt with `-` or `_`."""
    values = kind.modernised(read(file, toml.loads, "TOML"))
    plain: dict[str, object] = {}
    for spelt, value in values.items():
        name = spelt.replace("-", "_")
        if name not in names and begun:
            raise UserError(
                f"{str(file.parent)!r} was begun by another command; resume it with that one."
            )
        if name not in names:
            raise UserError(f"In {str(file)!r}: {unknown('setting', name, names)}")
        if name in plain:
            raise UserError(f"In {str(file)!r}: {name!r} is set twice; keep one of the two.")
        plain[name] = value
    return plain


def _set(arguments: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if value not in (None, [])}


def _flag(name: str, kind: type[Config]) -> inspect.Parameter:
    field = kind.model_fields[name]
    default = field.default
    shown = (field.description or "").replace("[", r"\[")  # which is no markup
    if not field.is_required() and default not in (None, ()) and field.default_factory is None:
        shown += (
            f" Default: {('yes' if default else 'no') if isinstance(default, bool) else default}."
        )
    if _extra(kind, name, "argument"):
        argument = typer.Argument(help=shown, show_default=False)
        return inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[_read_as(field.annotation) | None, argument],
        )
    spelt = _extra(kind, name, "flag")
    option = typer.Option(
        *([spelt] if spelt else []),
        help=shown,
        metavar=_extra(kind, name, "metavar") or _placeholder(field.annotation),
        show_default=False,
        rich_help_panel=_declaring(name, kind).panel,
    )
    read_as = list[str] if _extra(kind, name, "repeated") else _read_as(field.annotation)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[read_as | None, option],
    )


def _extra(kind: type[Config], name: str, key: str) -> Any:
    """What a setting says about its flag: `hidden`, `argument`, `repeated`, `flag`, `metavar`."""
    extra = kind.model_fields[name].json_schema_extra
    return extra.get(key) if isinstance(extra, dict) else None


def _in_order(kind: type[Config]) -> list[str]:
    """The settings table by table, as the class lists its bases."""
    order = list(kind.__mro__)
    return sorted(kind.model_fields, key=lambda name: order.index(_declaring(name, kind)))


def _declaring(name: str, kind: type[Config]) -> type[Config]:
    """The table of settings that a setting was first declared in."""
    owners = [c for c in kind.__mro__ if issubclass(c, Config) and name in c.__annotations__]
    return owners[-1]


def _read_as(annotation: Any) -> type:
    """What the command line reads a setting as: numbers are left to the settings to check.

    So a wrong one gets the same sentence, whether it stands in a flag or in a file.
    """
    kinds = {annotation, *get_args(annotation)}
    return next((kind for kind in (bool, Path) if kind in kinds), str)


def _placeholder(annotation: Any) -> str | None:
    kinds = {annotation, *get_args(annotation)}
    if bool in kinds:
        return ""  # a flag takes no value
    return next((f"<{kind.__name__}>" for kind in (int, float) if kind in kinds), None)
