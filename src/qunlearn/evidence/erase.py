"""Erasing what a run has forgotten, everywhere in a folder.

A plan is made first, and nothing is changed by that. Before the first change the plan is saved in
the run's folder; each of its steps may be repeated. After a kill, the same command goes on with the
saved plan, whatever else is asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qunlearn.data import manifest, sources
from qunlearn.data.manifest_key import destroy_shared
from qunlearn.data.sources.decode import cached_as, safe_name
from qunlearn.dates import utc
from qunlearn.errors import UserError
from qunlearn.evidence.clean import ASKED, alias_of, clean_run, new_tokens
from qunlearn.evidence.commitment import commitment_of
from qunlearn.evidence.erased import ERASED, ErasedRecord, Left
from qunlearn.evidence.family import erasable, family
from qunlearn.evidence.samples import check_data, drop_rows, sample_files
from qunlearn.runs.data import data_config, place_of
from qunlearn.runs.lines import RequestLine
from qunlearn.runs.origin import origin_of
from qunlearn.runs.provenance import lines_of
from qunlearn.store import study
from qunlearn.store import toml as toml_file
from qunlearn.store.cache import default_cache_dir, drop_cache
from qunlearn.store.files import json_text, read_object, remove, write_json, write_text
from qunlearn.store.lock import LOCK, check_unlocked, locked
from qunlearn.store.place import FILE, kind_of, named
from qunlearn.store.run import AUDIT, CHECKPOINT, INFO, KEY, PAGE, PAPERS, PARTS, RECORDS, Run
from qunlearn.store.secret import write_secret
from qunlearn.store.swap import delete_empty, delete_figures, delete_files
from qunlearn.store.typed import typed, untyped

PLAN = ".erase-plan.json"
OURS = (INFO, *PARTS, CHECKPOINT, AUDIT, KEY, PAGE, "data.npz")
"""What is deleted of a run; signed records stay, for the chain."""

Action = Literal["key", "rows", "file", "cache", "delete", "comparison", "clean"]


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
    """

    within: str
    tokens: Mapping[str, str]
    steps: tuple[Step, ...]
    left: tuple[Left, ...]
    cascade: tuple[str, ...] = ()

    @property
    def removed(self) -> tuple[str, ...]:
        """What is deleted, as people are told."""
        words = {"delete": "", "rows": "samples in ", "cache": "decoded images, "}
        shown = [
            words[step.action] + self.short(step.path)
            for step in self.steps
            if step.action in words
        ]
        files = sum(step.action == "file" for step in self.steps)
        return (*shown, *((f"{files:,} image files",) if files else ()))

    @property
    def cleaned(self) -> tuple[str, ...]:
        """What is cleaned, as people are told."""
        kinds = ("clean", "comparison")
        return tuple(self.short(step.path) for step in self.steps if step.action in kinds)

    def short(self, path: str) -> str:
        """A path, relative to the folder that is searched where it is in there."""
        try:
            return str(Path(path).relative_to(self.within))
        except ValueError:
            return path


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
            f"In {str(path)!r} an erasure was begun for {plan.within!r}; to go on with it, add "
            f"--within {plan.within}."
        )
    for step in plan.steps:
        if not _is_named(step, home, None if data is None else data.resolve()):
            raise UserError(
                f"The erasure that was begun in {str(path)!r} also changes {step.path!r}; to go on "
                "with it, name the data with --data, as before."
            )
    return plan


def _is_named(step: Step, home: Path, data: Path | None) -> bool:
    """Whether a step stays within what the user has named."""
    here = Path(step.path)
    if step.action == "key":  # no path, but the name of a data set
        return True
    if ".." in here.parts or here != here.parent.resolve() / here.name:
        return False
    if step.action in ("rows", "file"):
        return data is not None and here.is_relative_to(data)
    if step.action == "cache":
        return here.parent == (default_cache_dir() / "images").resolve()
    return here.is_relative_to(home)


def plan_erasing(path: Path, *, within: Path | None = None, data: Path | None = None) -> Plan:
    """What is to be erased for a run; changes nothing.

    Args:
        path: A run that has forgotten.
        within: The folder in which other runs are searched; by default the one it lies in.
        data: An .npz file or a folder of images from which the samples are to be erased, too.
    """
    run, within = Run.open(path), within or path.absolute().parent
    if not within.is_dir() or not path.resolve().is_relative_to(within.resolve()):
        raise UserError(
            f"The run {str(path)!r} is not in {str(within)!r}; name a folder above it with "
            "--within."
        )
    within = within.resolve()
    run = Run.open(path.resolve())
    known = manifest.parse(run.split)
    if not known.requests:
        raise UserError(
            f"The run {str(path)!r} has forgotten nothing, so that there is nothing to erase; name "
            "one that `qunlearn forget` wrote."
        )
    tokens = new_tokens(erasable(known))
    relatives = family(run, within) if tokens else []
    for each in relatives:
        check_unlocked(each.path)
    steps = [] if data is None else _data_steps(data, frozenset(tokens), run)
    if known.keyed:
        steps.append(Step("key", known.dataset))
    steps += _cache_steps(run, data)
    order: tuple[Action, ...] = ("delete", "comparison", "clean")
    for action in order:
        found = [each for each in relatives if each.role == action]
        steps += [Step(action, str(each.path), each.answered) for each in found]
    cascade = tuple(str(each.path.relative_to(within)) for each in relatives if each.cascade)
    unread = [each.path for each in relatives if each.role == "unreadable"]
    left = [
        *_left(run, data, within),
        *(Left("unreadable", str(p.relative_to(within))) for p in unread),
    ]
    left += _foreign([each.path for each in relatives if each.role == "delete"])
    if not tokens and data is None:
        raise UserError(f"The samples that {str(path)!r} has forgotten are erased already.")
    return Plan(str(within), tokens, tuple(steps), tuple(left), cascade)


def _data_steps(data: Path, ids: frozenset[str], run: Run) -> list[Step]:
    check_data(data)
    if data.is_dir():
        files = sample_files(data, ids, alias_of(run))
        return [Step("file", str(path.parent.resolve() / path.name)) for path in files]
    return [Step("rows", str(data.resolve()))]


def _cache_steps(run: Run, data: Path | None) -> list[Step]:
    """The decoded images of the run's data, where they may be cached."""
    config = place_of(run)
    place = data or config.data_dir
    if place is None and config.dataset not in sources:
        place = Path(config.dataset)
    if place is None:
        return []
    name = cached_as(safe_name(place.stem if place.suffix == ".npz" else place.name), place)
    images = (default_cache_dir() / "images").resolve()
    return [Step("cache", str(images / name))] if [*images.glob(f"{name}*")] else []


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
    if config.metadata is not None:
        left.append(Left("metadata", str(config.metadata)))
    return left


def _foreign(folders: list[Path]) -> list[Left]:
    """Files that others put into folders which are to be deleted; they stay."""
    ours = {*OURS, *PAPERS, RECORDS, "figures", LOCK}
    return [
        Left("foreign", str(entry))
        for path in folders
        for entry in sorted(path.iterdir())
        if entry.name not in ours and not entry.name.startswith(".")
    ]


def erase(path: Path, plan: Plan) -> ErasedRecord:
    """Do what was planned, or go on with what was begun; may be repeated after a kill."""
    path, within = path.resolve(), Path(plan.within)
    with named(within), locked(path):
        if kind_of(path / PLAN) is None:
            commitment_of(Run.open(path))
            write_secret(path / PLAN, json_text(untyped(plan)).encode())
        with ExitStack() as locks:
            for folder in _folders(plan, "delete", "clean"):
                if folder.is_dir() and folder != path:
                    locks.enter_context(locked(folder))
            for step in plan.steps:
                _do(step, plan, path)
        for folder in _folders(plan, "delete"):  # now that no lock is in them
            _delete_emptied(folder, within)
        done = _note(Run(path), plan)
        remove(path / PLAN)
    return done


def _note(run: Run, plan: Plan) -> ErasedRecord:
    """Put on record in a run's folder what was erased, and whose requests it answered."""
    known = manifest.parse(run.split).requests[-1]
    lines = lines_of(run) or (RequestLine(len(known.ids) + len(known.retired)),)
    erased = (len(plan.tokens), plan.removed, plan.cleaned, plan.left)
    done = ErasedRecord(utc(time.time()), *erased, lines, run.info.finished or "")
    write_json(run.path / ERASED, untyped(done))
    return done


def _folders(plan: Plan, *actions: Action) -> list[Path]:
    return [Path(step.path) for step in plan.steps if step.action in actions]


def _delete_emptied(folder: Path, within: Path) -> None:
    """Delete a folder, and those above it, as far as nothing is left in them."""
    while folder != within and folder.is_relative_to(within):
        delete_empty(folder)
        folder = folder.parent


def _do(step: Step, plan: Plan, home: Path) -> None:
    path, ids = Path(step.path), frozenset(plan.tokens)
    if step.action == "rows":
        drop_rows(path, ids, alias=alias_of(Run(home)))
    elif step.action == "key":
        destroy_shared(step.path, ids, manifest.parse(Run(home).split).names - ids)
    elif step.action == "file":
        remove(path)
    elif step.action == "cache":
        drop_cache(path.parent, path.name)
        drop_cache(path.parent, f"{path.name}-subset")
    elif step.action == "comparison":
        _clean_comparison(path)
    elif step.action == "clean":
        clean_run(path, plan.tokens)
    elif path.is_dir():
        if step.answered and Run.is_complete(path) and kind_of(path / ERASED) is None:
            _note(Run(path), plan)
        delete_files(path, list(OURS))
        delete_figures(path)


def _clean_comparison(path: Path) -> None:
    """Remove what a comparison says of whose samples were forgotten; its figures stay."""
    folder = study.StudyFolder(path)
    config = {key: value for key, value in folder.config.items() if key not in ASKED}
    write_text(path / study.CONFIG, toml_file.dumps(config))
    if kind_of(path / study.TABLE) == FILE:
        table = folder.table
        if table.get("request") in ("where", "ids"):
            folder.write_table({**table, "detail": {}})
    remove(path / PAGE)
    delete_figures(path)
