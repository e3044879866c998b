"""Finished runs and settings that somebody made up, with checksums that agree: one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import SMALL, flags
from sealed import seal

from qunlearn.children import at_a_time
from qunlearn.study import workers

Command = Callable[..., tuple[int, str, str]]


METRICS: Sequence[object] = (
    *({}, {"parts": []}, {"parts": None}, {"parts": {"a": {}}}, {"parts": {"a": []}}),
    *(
        {"parts": {"a": {"accuracy": "\x1b[31m"}}},
        {"parts": {}, "FA": 1},
        {"parts": {}, "FA": None},
    ),
    *({"parts": {}, "before": 7}, {"parts": {}, "duplicates": 7}, [], 7, "parts"),
)


@pytest.mark.parametrize("metrics", METRICS, ids=str)
@pytest.mark.parametrize("command", ["train", "forget"])
def test_metrics_of_a_finished_run(
    qunlearn: Command,
    run_folder: Path,
    forgotten: Path,
    tmp_path: Path,
    command: str,
    metrics: object,
) -> None:
    source = run_folder if command == "train" else forgotten
    run = Path(shutil.copytree(source, tmp_path / "run"))
    (run / "metrics.json").write_text(json.dumps(metrics))
    seal(run)
    code, _, err = qunlearn(command, "--resume", "--out", run)
    assert (code, err.count("\n")) == (2, 1), err


@pytest.mark.parametrize("seconds", [None, [], {"forgetting": "x"}, {}])
def test_information_on_a_finished_run(
    qunlearn: Command, forgotten: Path, tmp_path: Path, seconds: object
) -> None:
    run = Path(shutil.copytree(forgotten, tmp_path / "run"))
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "seconds": seconds}))
    seal(run)
    code, _, err = qunlearn("forget", "--resume", "--out", run)
    assert (code, err.count("\n")) == (2, 1), err


def test_no_file_starts_thousands_of_processes(
    qunlearn: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.toml").write_text("devices = 100_000\n")
    words = flags({name: value for name, value in SMALL.items() if name != "devices"})
    code, _, err = qunlearn(
        "train", *words, "--config", tmp_path / "a.toml", "--out", tmp_path / "new"
    )
    assert code == 2
    assert "processes at a time, not 100000; lower --devices" in err
    assert not (tmp_path / "new").exists()

    class Asked(Exception):
        """For how many processes."""

    def pool(count: int, *_: object) -> None:
        raise Asked(count)

    monkeypatch.setattr(workers, "ProcessPoolExecutor", pool)
    with pytest.raises(Asked, match=f"^{at_a_time()}$"):
        workers.Pool(abs, 100_000)
