"""Erasing what a run has forgotten, everywhere in a folder.

The plan is saved in the run's folder before the first change, and each of its steps may be
repeated: after a kill, the same command comes to the same end.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from qunlearn.audit.pool_folder import LIST, LISTS
from qunlearn.data import manifest
from qunlearn.data.manifest_key import ManifestKey, destroy_shared
from qunlearn.dates import utc
from qunlearn.evidence.clean import ASKED, alias_of, clean_manifest, clean_run
from qunlearn.evidence.commitment import commitment_of, save_commitment
from qunlearn.evidence.erased import ERASED, ErasedRecord, erased_of
from qunlearn.evidence.family import key_of
from qunlearn.evidence.plan import DELETED, PLAN, Action, Plan, Step, is_also
from qunlearn.evidence.samples import drop_rows
from qunlearn.runs.lines import RequestLine
from qunlearn.runs.provenance import lines_of
from qunlearn.store import study
from qunlearn.store import toml as toml_file
from qunlearn.store.cache import drop_cache
from qunlearn.store.files import json_text, remove, write_json, write_text
from qunlearn.store.layout import PAGE, names
from qunlearn.store.lock import locked
from qunlearn.store.parcel import delete_private
from qunlearn.store.place import FILE, FOLDER, kind_of, named
from qunlearn.store.run import Run
from qunlearn.store.secret import write_secret
from qunlearn.store.swap import delete_empty, delete_figures, delete_files
from qunlearn.store.typed import untyped


def erase(path: Path, plan: Plan) -> ErasedRecord:
    """Do what was planned, or resume what was begun; may be repeated after a kill."""
    path, within = path.resolve(), Path(plan.within)
    with named(within), locked(path):
        if kind_of(path / PLAN) is None:
            run = Run.open(path)
            save_commitment(run, commitment_of(run))
            write_secret(path / PLAN, json_text(untyped(plan)).encode())
        with ExitStack() as locks:
            for folder in _folders(plan, "delete", "comparison", "rekey", "clean"):
                if folder.is_dir() and folder != path:
                    locks.enter_context(locked(folder))
            for step in plan.steps:
                _do(step, plan, path)
        for folder in _folders(plan, "delete"):  # now that no lock is in them
            _delete_emptied(folder, within)
        for folder in _folders(plan, "pool"):
            _delete_emptied(folder / LISTS, within)
        done = _note(Run(path), plan)
        remove(path / PLAN)
    return done


def _note(run: Run, plan: Plan) -> ErasedRecord:
    """Put on record in a run's folder what was erased, now and before, and for which requests."""
    requests = manifest.parse(clean_manifest(run.split, plan.tokens)).requests
    samples = len(requests[-1].ids) + len(requests[-1].retired)
    done = ErasedRecord(
        utc(time.time()),
        len(plan.tokens),
        plan.removed,
        plan.cleaned,
        plan.left,
        lines_of(run) or (RequestLine(samples),),
        run.info.finished or "",
        key_of(requests),
    )
    before = erased_of(run.path)
    if before is not None:  # the data was named later, or this is repeated after a kill
        done = replace(
            done,
            samples=max(done.samples, before.samples),
            removed=tuple(dict.fromkeys((*before.removed, *done.removed))),
            cleaned=tuple(dict.fromkeys((*before.cleaned, *done.cleaned))),
        )
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
    match step.action:
        case "rows":
            drop_rows(path, ids, alias=alias_of(Run(home)))
        case "key":
            destroy_shared(step.path, ids, manifest.parse(Run(home).split).names - ids)
        case "file":
            remove(path)
        case "cache":
            drop_cache(path.parent, path.name)
            drop_cache(path.parent, f"{path.name}-subset")
        case "comparison":
            _clean_comparison(path)
        case "pool":
            lists = path / LISTS
            if kind_of(lists) == FOLDER:
                delete_files(lists, [name for name in names(lists) if LIST.fullmatch(name)])
            delete_private(path / study.JOBS)  # left by an audit that was interrupted
        case "rekey":
            _rekey(Run(path), ids)
        case "clean":
            clean_run(path, plan.tokens)
        case "delete" if path.is_dir():
            if step.answered and Run.is_complete(path) and kind_of(path / ERASED) is None:
                _note(Run(path), plan)
            delete_files(path, [*DELETED, *(each.name for each in path.iterdir() if is_also(each))])
            delete_figures(path)


def _rekey(run: Run, ids: frozenset[str]) -> None:
    """Destroy the samples' keys in a run that does not have them, but shares the seed."""
    key = ManifestKey.read(run.path)
    if key is not None:
        key.without(ids, manifest.parse(run.split).names - ids).write(run.path)


def _clean_comparison(path: Path) -> None:
    """Remove what a comparison says of whose samples were forgotten; its figures stay."""
    folder = study.StudyFolder(path)
    config = {key: value for key, value in folder.config.items() if key not in ASKED}
    write_text(path / study.CONFIG, toml_file.dumps(config))
    if kind_of(path / study.TABLE) == FILE:
        table = folder.table
        if table.get("request") in ("where", "ids"):
            folder.write_table({**table, "detail": {}})
    delete_private(path / study.JOBS)  # left by a study that was interrupted: orders, and logs
    remove(path / PAGE)
    delete_figures(path)
