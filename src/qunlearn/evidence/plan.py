"""What is to be erased for a run: planned as a whole before the first change.

The plan is saved in the run's folder while it is carried out, so that the same command resumes it
after a kill, whatever else is asked then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qunlearn.audit.pool_folder import pool_above
from qunlearn.data import manifest, sources
from qunlearn.data.sources.decode import cached_as, safe_name
from qunlearn.data.stream import cached_arrays
from qunlearn.errors import UserError
from qunlearn.evidence.clean import alias_of, new_tokens
from qunlearn.evidence.commitment import committed_ids
from qunlearn.evidence.erased import Kind, Left
from qunlearn.evidence.family import Relative, erasable, family
from qunlearn.evidence.samples import check_data, sample_files
from qunlearn.runs.data import data_config, place_of, split_of
from qunlearn.runs.origin import origin_of
from qunlearn.store.cache import default_cache_dir
from qunlearn.store.files import read_object
from qunlearn.store.layout import (
    ALSO,
    AUDIT,
    CHECKPOINT,
    CONFIG,
    INFO,
    KEY,
    PAGE,
    PAPERS,
    PARTS,
    RECORDS,
)
from qunlearn.store.lock import LOCK, check_unlocked
from qunlearn.store.place import FILE, kind_of
from qunlearn.store.run import Run
from qunlearn.store.typed import typed

PLAN = ".erase-plan.json"
DELETED = (INFO, *PARTS, CHECKPOINT, AUDIT, KEY, PAGE, "data.npz")
"""The files that are deleted of a run, with `ALSO`; signed records stay, for the chain."""

Action = Literal["key", "rows", "file", "cache", "delete", "comparison", "pool", "rekey", "clean"]


@dataclass(frozen=True)
class Step:
    """One step: what is done, and to what; of a run that answered a request, a line stays."""

    action: Action
    path: str
    answered: bool = False


@dataclass(frozen=True)
class Plan:
    """Everything that is to be erased.

    Attributes:
        within: The folder in which runs are searched.
        tokens: The name that each sample gets instead of its id.
        steps: What is done, in order.
        left: What is not reached.
        cascade: Runs that others may need, for which --cascade has to be given.
        outdated: Runs whose signed record will be about files that are no longer there.
    """

    within: str
    tokens: Mapping[str, str]
    steps: tuple[Step, ...]
    left: tuple[Left, ...]
    cascade: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()

    @property
    def removed(self) -> tuple[str, ...]:
        """What is deleted, as people are told; a pool counts as one thing."""
        words = {
            "delete": "",
            "rows": "samples in ",
            "cache": "decoded images, ",
            "pool": "the pool ",
        }
        pools = [Path(step.path) for step in self.steps if step.action == "pool"]
        shown = [
            words[step.action] + self.short(step.path)
            for step in self.steps
            if step.action in words
            and (step.action == "pool" or not any(map(Path(step.path).is_relative_to, pools)))
        ]
        files = sum(step.action == "file" for step in self.steps)
        return (*shown, *((f"{files:,} image files",) if files else ()))

    @property
    def cleaned(self) -> tuple[str, ...]:
        """What is cleaned, as people are told."""
        kinds = ("clean", "comparison")
        return tuple(self.short(step.path) for step in self.steps if step.action in kinds)

    def short(self, path: str) -> str:
        """A path relative to the folder that is searched; of one outside, the name alone.

        It goes into the signed record, which is handed out.
        """
        try:
            return str(Path(path).relative_to(self.within))
        except ValueError:
            return Path(path).name


def pending(path: Path, *, within: Path | None = None, data: Path | None = None) -> Plan | None:
    """The plan that was begun in a run's folder and not finished; None if there is none.

    The folder may be somebody else's: a plan that reaches beyond what is named now is refused.
    """
    saved = path / PLAN
    if kind_of(saved) != FILE:
        return None
    plan = typed(Plan, read_object(saved), saved)
    home = (within or path.absolute().parent).resolve()
    if Path(plan.within) != home:
        raise UserError(
            f"In {str(path)!r} an erasure was begun for {plan.within!r}; to resume it, add "
            f"--within {plan.within}."
        )
    for step in plan.steps:
        if not _is_named(step, home, None if data is None else data.resolve()):
            raise UserError(
                f"The erasure that was begun in {str(path)!r} also changes {step.path!r}; to "
                "resume it, name the data with --data, as before."
            )
    return plan


def _is_named(step: Step, home: Path, data: Path | None) -> bool:
    """Whether a step stays within what the user has named."""
    path = Path(step.path)
    if step.action == "key":  # no path, but the name of a data set
        return True
    if ".." in path.parts or path != path.parent.resolve() / path.name:
        return False
    if step.action in ("rows", "file"):
        return data is not None and path.is_relative_to(data)
    if step.action == "cache":
        return path.parent == (default_cache_dir() / "images").resolve()
    return path.is_relative_to(home)


def plan_erasing(path: Path, *, within: Path | None = None, data: Path | None = None) -> Plan:
    """What is to be erased for a run; changes nothing.

    Args:
        path: A run that has forgotten.
        within: The folder in which other runs are searched; by default the one it lies in.
        data: An .npz file or a folder of images from which the samples are to be erased, too. It
            must be the data of the run.
    """
    Run.open(path)
    home = (within or path.absolute().parent).resolve()
    if not home.is_dir() or not path.resolve().is_relative_to(home):
        raise UserError(
            f"The run {str(path)!r} is not in {str(within)!r}; name a folder above it with "
            "--within."
        )
    run = Run.open(path.resolve())
    split = manifest.parse(run.split)
    if not split.requests:
        raise UserError(
            f"The run {str(path)!r} has forgotten nothing, so that there is nothing to erase; name "
            "one that `qunlearn forget` wrote."
        )
    tokens = new_tokens(erasable(split))
    relatives = family(run, home) if tokens else []
    for relative in relatives:
        check_unlocked(relative.path)
    steps: list[Step] = []
    if data is not None:
        names = _names_in_data(run, data, frozenset(tokens))
        tokens |= new_tokens(names - tokens.keys())
        steps += _data_steps(data, names, run) if names else []
    if not tokens:
        raise UserError(f"The samples that {str(path)!r} has forgotten are erased already.")
    if split.keyed:
        steps.append(Step("key", split.dataset))
    users = [Run(each.path) for each in relatives if each.role in ("delete", "clean")]
    steps += _cache_steps([run, *users], data)
    order: tuple[Action, ...] = ("delete", "comparison", "pool", "rekey", "clean")
    for action in order:
        folders = [each for each in relatives if each.role == action]
        steps += [Step(action, str(each.path), each.answered) for each in folders]

    def names_of(chosen: list[Relative]) -> tuple[str, ...]:
        return tuple(str(each.path.relative_to(home)) for each in chosen)

    left = [
        *_left(run, data, home),
        *(Left("unreadable", n) for n in names_of(_with_role(relatives, "unreadable"))),
        *_asked_with([run.path, *(each.path for each in _with_role(relatives, "delete"))]),
        *_foreign([each.path for each in _with_role(relatives, "delete")]),
    ]
    return Plan(
        str(home),
        tokens,
        tuple(steps),
        tuple(left),
        cascade=names_of([each for each in relatives if each.cascade]),
        outdated=names_of(
            [r for r in _with_role(relatives, "clean") if kind_of(r.path / PAPERS[0]) == FILE]
        ),
    )


def _with_role(relatives: list[Relative], role: str) -> list[Relative]:
    return [each for each in relatives if each.role == role]


def _names_in_data(run: Run, data: Path, ids: frozenset[str]) -> frozenset[str]:
    """The samples to erase that are in the data, after checking that it is the run's.

    Ids such as `train/5` occur in any file: in another one they are somebody else's. Of a run that
    was erased before, the ids are gone; the commitment to them still knows its own.
    """
    check_data(data)
    names = frozenset(split_of(run, data).data.ids)
    return (ids & names) or committed_ids(run, names)


def _data_steps(data: Path, ids: frozenset[str], run: Run) -> list[Step]:
    if data.is_dir():
        files = sample_files(data, ids, alias_of(run))
        return [Step("file", str(path.parent.resolve() / path.name)) for path in files]
    return [Step("rows", str(data.resolve()))]


def _cache_steps(runs: list[Run], data: Path | None) -> list[Step]:
    """The decoded images of the data that the runs use, where they may be cached."""
    places = [] if data is None else [data]
    for config in map(place_of, runs):
        if config.data_dir is not None:
            places.append(config.data_dir)
        elif config.dataset not in sources:
            places.append(Path(config.dataset))
    names = [
        cached_as(safe_name(place.stem if place.suffix == ".npz" else place.name), place)
        for place in places
    ]
    names += [cached_arrays(manifest.parse(run.split).dataset) for run in runs]
    images = (default_cache_dir() / "images").resolve()
    return [
        Step("cache", str(images / name))
        for name in dict.fromkeys(names)
        if [*images.glob(f"{name}[.-]*")]
    ]


def _left(run: Run, data: Path | None, within: Path) -> list[Left]:
    config = data_config(run)
    left = [Left("backups"), Left("exports"), Left("devices")]
    origin = origin_of(run)
    if origin is not None and not origin.path.resolve().is_relative_to(within):
        left.append(Left("outside", str(origin.path)))
    if data is None:
        embedded = config.data_dir is None and config.dataset in sources
        place = str(config.data_dir or config.dataset)
        left.append(Left("embedded" if embedded else "data", place))
    if run.info.made_in == "Python":  # which may have named any folder with cache_dir=
        left.append(Left("cache", "in the folders that were named with cache_dir="))
    if config.metadata is not None:
        left.append(Left("metadata", str(config.metadata)))
    return left


def _asked_with(folders: list[Path]) -> list[Left]:
    """What runs were asked with: the user's lists of ids, and a cache in a place of its own.

    The lists of a pool are deleted with it.
    """
    kinds: dict[str, Kind] = {"ids": "list", "requests": "list", "cache_dir": "cache"}
    configs = [
        Run(path).config
        for path in folders
        if kind_of(path / CONFIG) == FILE and pool_above(path) is None
    ]
    left = [Left(kinds[name], str(c[name])) for c in configs for name in kinds if name in c]
    return list(dict.fromkeys(left))


def is_also(path: Path) -> bool:
    """Whether a file is a proof for a requester, or an exported network."""
    return kind_of(path) == FILE and ALSO.fullmatch(path.name) is not None


def _foreign(folders: list[Path]) -> list[Left]:
    """Files that others put into folders which are to be deleted; they stay."""
    ours = {*DELETED, *PAPERS, RECORDS, "figures", LOCK}
    return [
        Left("foreign", str(entry))
        for path in folders
        for entry in sorted(path.iterdir())
        if entry.name not in ours and not (entry.name.startswith(".") or is_also(entry))
    ]
