"""Comparisons and measurements that nobody has measured."""

import json

from qunlearn.metrics import PartScores, Scores

SCORES = ("FA", "RA", "TA", "MIA")
BEFORE = {"FA": 99.0, "RA": 99.0, "TA": 80.0, "MIA": 5.0}
RETRAIN = {"FA": 80.0, "RA": 99.0, "TA": 80.0, "MIA": 35.0}
MODELS = {
    "forgetter": {"FA": 80.3, "RA": 99.0, "TA": 79.8, "MIA": 35.2},
    "memoriser": {"FA": 98.5, "RA": 99.0, "TA": 80.0, "MIA": 6.0},
    "eager": {"FA": 30.0, "RA": 97.0, "TA": 78.0, "MIA": 90.0},
    "wrecker": {"FA": 10.0, "RA": 12.0, "TA": 10.0, "MIA": 90.0},
}
SAMPLES = {"retain": 40_000, "forget": 4_500, "held_out": 5_000, "test": 10_000}


def parts(forget, unseen, samples=SAMPLES):
    """Each part's figures, from accuracy and confidence on forgotten and on unseen samples."""
    rows = dict.fromkeys(samples, unseen) | {"forget": forget, "retain": (99.0, 0.98)}
    return {
        part: {
            "accuracy": rows[part][0],
            "confidence": rows[part][1],
            "entropy": 0.5,
            "samples": samples[part],
        }
        for part in samples
    }


def metrics(forget, unseen=(80.0, 0.75), was=(99.0, 0.98), ra=99.0, samples=SAMPLES):
    """A run's scores without Retrain, after and before."""
    now, then = parts(forget, unseen, samples), parts(was, (80.0, 0.75), samples)
    now["retain"]["accuracy"] = ra
    return tuple(
        Scores({name: PartScores(**part) for name, part in each.items()}, {"confidence": mia})
        for each, mia in ((now, 30.0), (then, BEFORE["MIA"]))
    )


def measured(values):
    """What was measured where the four figures have these values, as files have it."""
    rows = parts((values["FA"], 0.7), (values["TA"], 0.7))
    rows["retain"]["accuracy"] = values["RA"]
    return {**values, "attacks": {"confidence": values["MIA"]}, "parts": rows}


def table(models=MODELS, seeds=3, floor=0.6, **changed):
    """A comparison's table: Retrains `floor` apart in every figure."""
    shifts = [floor * (seed % 2) for seed in range(seeds)]

    def row(name, values, gaps):
        return {
            "method": name,
            "seeds": seeds,
            "trials": 0,
            "settings": {"lr": 0.1, "augment": True},
            **{s: [values[s], 0.5 if seeds > 1 else None] for s in SCORES},
            "seconds": [3.0, None],
            "runtime": [12.5, None],
            "evenly_timed": True,
            "entropy": {key: [0.5, None] for key in SAMPLES},
            "agreement": {key: [87.5, None] for key in SAMPLES},
            "divergence": {key: [0.0123, None] for key in SAMPLES},
            "cells": [
                {
                    "metrics": measured({s: values[s] + shift for s in SCORES}),
                    "folder": f"seed{seed}",
                    **{"seed": seed, "seconds": 3.0, "settings": {}, "threads": 1},
                }
                for seed, shift in enumerate(shifts)
            ],
            "gaps": {s: [gaps[s], None] for s in SCORES},
            "AG": [sum(gaps.values()) / 4, 0.1 if seeds > 1 else None],
        }

    rows = [row("retrain", RETRAIN, dict.fromkeys(SCORES, 0.0))]
    for name, values in models.items():
        rows.append(row(name, values, {s: abs(values[s] - RETRAIN[s]) for s in SCORES}))
    return {
        "request": "random",
        "detail": {"fraction": 0.1, "seed": 0},
        "parts": SAMPLES,
        "seeds": seeds,
        "select": None,
        "settings_from": None,
        "failed": {},
        "original": measured(BEFORE),
        "rows": rows,
        "noise_floor": {"AG": [floor, 0.1], "pairs": 3} if seeds > 1 else None,
    } | changed


def comparison(path, content):
    """A comparison's folder with this table and without cells."""
    path.mkdir(parents=True)
    (path / "compare.toml").write_text('run = "runs/original"\nmethods = "all"\n')
    (path / "table.json").write_text(json.dumps(content))
    return path
