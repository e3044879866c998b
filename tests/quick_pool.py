"""Runs that have forgotten, whose original is small enough for a pool, and a pool made here."""

import shutil

from conftest import SMALL, made_once

from qunlearn.runs.config import TrainConfig
from qunlearn.runs.forget import forget_run
from qunlearn.runs.request import ForgetConfig
from qunlearn.runs.train import train_run
from qunlearn.store.run import Run
from qunlearn.study.config import MakePoolConfig
from qunlearn.study.pool import make_pool

SIZE = {"models": 6, "epochs": 1, "threads": 1, "candidates": 0.5}


def config(**other):
    return MakePoolConfig.parse({**SIZE, **other})


def audited_runs(tmp_path_factory):
    """A folder of an original and of runs that have forgotten by two methods; to be changed."""

    def make(base):
        asked = {**SMALL, "model": "cnn", "width": 0.25, "subset": 300, "epochs": 3}
        train_run(TrainConfig.parse(asked), base / "original")
        for method in ("ft", "rl"):
            words = {"run": base / "original", "random": 0.1, "method": method, "epochs": 1}
            forget_run(ForgetConfig.parse({**words, "threads": 1}), base / method)

    base = made_once(tmp_path_factory, "pooled", make)
    return shutil.copytree(base, tmp_path_factory.mktemp("pool") / "runs")


def weights_made_here(tmp_path_factory):
    """The digests of a pool's weights, made one after another in this process, by run folder."""

    def make(base):
        runs = audited_runs(tmp_path_factory)
        shutil.copytree(make_pool(runs / "ft", config()).folder, base / "pool")

    return weights(made_once(tmp_path_factory, "pool-here", make) / "pool")


def weights(pool):
    return {
        str(path.parent.relative_to(pool)): Run.open(path.parent).info.model_sha256
        for path in pool.rglob("run.json")
    }
