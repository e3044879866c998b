"""Writes whatever the store writes, with a fault at each system call in turn.

Run by test_faults.py, with calls.c preloaded: `write.py FOLDER`. Prints, for each thing that is
written, at how many calls it was stopped, and how often the old state and the new was found then.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from qunlearn.errors import Failure, UserError
from qunlearn.store.cache import memory_mapped
from qunlearn.store.files import write_text
from qunlearn.store.history import Epoch
from qunlearn.store.info import RunInfo
from qunlearn.store.lock import LOCK
from qunlearn.store.run import Run
from qunlearn.store.study import StudyFolder
from qunlearn.store.weights import read_tensors, write_weights

PIXELS = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
CALLS = ctypes.CDLL(None)
EPOCH = Epoch(epoch=1, seconds=0.5, elapsed=0.5)


@dataclass(frozen=True)
class Deed:
    """What is there before, what is done, and which state is found after: "old" or "new"."""

    before: Callable[[Path], None]
    deed: Callable[[Path], object]
    found: Callable[[Path], str]


def tensors(value: float) -> dict[str, torch.Tensor]:
    return {"a": torch.full((300, 100), value), "b": torch.full((3, 1), value)}


def make_run(path: Path) -> Run:
    with Run.writing(path, {"lr": 1.0}, "{}", resume=True) as run:
        if not Run.is_complete(path):
            run.append_history(EPOCH)
            write_weights(run.model_path, tensors(1), {"of": "a run"})
            run.write_predictions(tensors(2))
            run.write_metrics({"accuracy": 1.5})
            write_weights(run.checkpoint_path, tensors(1), {})
            run.finish(RunInfo({"training": 1}))
    return run


def whole(path: Path) -> str:
    """Whether there is a run with everything in it ("new") or none ("old")."""
    if not Run.is_complete(path):
        return "old"
    run = Run.open(path)
    run.check_model()
    assert (run.config, run.split, run.history) == ({"lr": 1.0}, "{}", [EPOCH])
    assert (run.metrics, run.info.seconds) == ({"accuracy": 1.5}, {"training": 1})
    assert same(run.predictions, 2)
    assert same(read_tensors(run.model_path), 1)
    return "new"


def same(found: dict[str, torch.Tensor], value: float) -> bool:
    wanted = tensors(value)
    return found.keys() == wanted.keys() and all(torch.equal(found[k], wanted[k]) for k in wanted)


def text_found(path: Path) -> str:
    return (path / "text").read_text()


def weights_found(path: Path) -> str:
    found = read_tensors(path / "weights")
    return "old" if same(found, 0) else "new" if same(found, 1) else "neither"


def run_found(path: Path) -> str:
    """A run; what was stopped half way can be thrown away and made again."""
    state = whole(path / "run")
    if state == "old":
        Run.discard(path / "run")
        make_run(path / "run")
        assert whole(path / "run") == "new"
    return state


def copy(path: Path) -> None:
    Run(path.parent / "origin").copy_to(path / "copy")


def copy_found(path: Path) -> str:
    state = whole(path / "copy")
    if state == "old":
        copy(path)
        assert whole(path / "copy") == "new"
    return state


def discarded(path: Path) -> str:
    """The other way round: there is a whole run before, and none after."""
    return {"new": "old", "old": "new"}[whole(path / "run")]


def cached(path: Path) -> object:
    return memory_mapped(path / "cache", "set", "key", PIXELS.shape, [PIXELS], lambda: "notes")


def cache_found(path: Path) -> str:
    state = "new" if (path / "cache" / "set.key.json").is_file() else "old"
    kept = memory_mapped(path / "cache", "set", "key", PIXELS.shape, [PIXELS], lambda: "notes")
    assert np.array_equal(kept.array, PIXELS)
    assert kept.notes == "notes"
    return state


def compared(path: Path) -> None:
    with StudyFolder.writing(path / "table", {"seeds": 3}) as folder:
        folder.write_table({"rows": [3]})


def table_found(path: Path) -> str:
    folder = StudyFolder(path / "table")
    state = {"[2]": "old", "[3]": "new"}[str(folder.table["rows"])]
    assert folder.config["seeds"] in ((2, 3) if state == "old" else (3,))
    return state


def old_table(path: Path) -> None:
    with StudyFolder.writing(path / "table", {"seeds": 2}) as folder:
        folder.write_table({"rows": [2]})


DEEDS = {
    "text": Deed(
        lambda path: write_text(path / "text", "old"),
        lambda path: write_text(path / "text", "new"),
        text_found,
    ),
    "weights": Deed(
        lambda path: write_weights(path / "weights", tensors(0), {}),
        lambda path: write_weights(path / "weights", tensors(1), {}),
        weights_found,
    ),
    "run": Deed(lambda path: None, lambda path: make_run(path / "run"), run_found),
    "copy": Deed(lambda path: None, copy, copy_found),
    "discard": Deed(
        lambda path: make_run(path / "run") and None,
        lambda path: Run.discard(path / "run", finished=True),
        discarded,
    ),
    "cache": Deed(lambda path: None, cached, cache_found),
    "table": Deed(old_table, compared, table_found),
}


def attempt(deed: Deed, place: Path, nth: int, die: bool) -> bool:
    """Do it with a fault at the nth call; whether it got so far."""
    if die:
        child = os.fork()
        if not child:
            CALLS.faults_begin(os.fsencode(place), nth, 1)
            deed.deed(place)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    CALLS.faults_begin(os.fsencode(place), nth, 0)
    try:
        deed.deed(place)
    except (Failure, UserError):  # one sentence, and nothing else may come out
        assert CALLS.faults_end()
        return True
    return bool(CALLS.faults_end())


def main(base: Path) -> None:
    told = {}
    make_run(base / "origin")
    for name, deed in DEEDS.items():
        for die in (False, True):
            states: Counter[str] = Counter()
            nth, stopped = 0, True
            while stopped:
                nth += 1
                place = base / f"{name}-{die}-{nth}"
                place.mkdir()
                deed.before(place)
                stopped = attempt(deed, place, nth, die)
                states[deed.found(place)] += stopped
                rubbish = [p.name for p in place.rglob(".*") if p.name != LOCK]  # which is empty
                assert die or name == "discard" or not rubbish, (name, nth, rubbish)
            told[f"{name}, {'dying' if die else 'failing'}"] = {"calls": nth - 1, **states}
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
