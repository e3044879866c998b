"""Small requests: are a few forgotten samples as unknown afterwards as a Retrain finds them?

    python benchmarks/small_requests.py OUT --original ORIGINAL [--requests 30] [--size 10]

OUT is a folder that `qunlearn compare ORIGINAL --random 0.1` has written. Its Retrains never saw
the forgotten tenth, so they judge every request for a part of it: each request takes `size` samples
of the tenth, and the original forgets them alone, by the defaults. (A Retrain without those alone
would have a ninth more to learn from; so the judge's confidence is slightly too low.) Each request
is a line of JSON, and the study resumes from what is there.
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from scipy.stats import ks_2samp
from torch import Tensor

from qunlearn.data import Split
from qunlearn.data.draw import generator
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.methods import forget
from qunlearn.metrics import auc, margin
from qunlearn.runs.data import split_of
from qunlearn.runs.evaluate import predictions, scores_of
from qunlearn.runs.model_file import load
from qunlearn.runs.outputs import measured_before
from qunlearn.store.run import Run
from qunlearn.store.typed import untyped
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.inference import predict

RESULTS = Path(__file__).parent / "results" / "small_requests"


def confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """Confidence in the true label."""
    return margin(logits, labels).sigmoid()


def judged(tenth: Split, retrains: list[Run], rows: Tensor) -> list[list[float]]:
    """Each Retrain's confidence in the samples at these places of the tenth."""
    labels = tenth.data.labels[tenth.forget[rows]]
    return [confidence(r.predictions["forget"][rows], labels).tolist() for r in retrains]


def request(original: Run, tenth: Split, retrains: list[Run], rows: Tensor) -> dict[str, Any]:
    """Forget the samples at these places of the tenth, and measure."""
    data, index = tenth.data, tenth.forget[rows]
    whole = Split.from_json(original.split, data, ManifestKey.read(original.path))
    split = whole.forget_ids([data.ids[i] for i in index.tolist()])
    model = load(original.path)
    recipe = {name: original.config[name] for name in ("batch_size", "weight_decay", "momentum")}
    fabric = make_fabric(ComputeConfig(threads=1))
    result = forget(model, split, fabric=fabric, **recipe)
    labels = data.labels[index]
    before = measured_before(original, model, split)
    after = scores_of(predictions(result.model, split), split)
    return {
        "ids": [data.ids[i] for i in index.tolist()],
        "before": confidence(predict(model, data, index), labels).tolist(),
        "after": confidence(predict(result.model, data, index), labels).tolist(),
        "retrains": judged(tenth, retrains, rows),
        "moved": {"RA": after.RA - before.RA, "TA": after.TA - before.TA},
        "calibration": untyped(result.findings.calibration),
        "seconds": result.seconds,
    }


def apart(one: Tensor, other: Tensor) -> dict[str, float]:
    """How far two distributions are apart at most, and how likely that is by chance."""
    test = ks_2samp(one.numpy(), other.numpy())
    return {"distance": float(test.statistic), "p": float(test.pvalue)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All requests pooled."""
    after = torch.tensor([value for row in rows for value in row["after"]])
    before = torch.tensor([value for row in rows for value in row["before"]])
    each = zip(*(row["retrains"] for row in rows), strict=True)
    judges = [torch.tensor([value for part in judge for value in part]) for judge in each]
    return {
        "requests": len(rows),
        "samples": len(after),
        "confidence": {
            "before": float(before.mean()),
            "after": float(after.mean()),
            "retrains": [float(judge.mean()) for judge in judges],
        },
        # 0.5: indistinguishable from a Retrain's; between two Retrains: chance.
        "auc": {
            "before": [auc(before, judge) for judge in judges],
            "after": [auc(after, judge) for judge in judges],
            "between retrains": [auc(one, other) for one, other in combinations(judges, 2)],
        },
        # The farthest that two distributions are apart (Kolmogorov and Smirnov), and the chance of
        # that if they were one.
        "apart": {
            "before": [apart(before, judge) for judge in judges],
            "after": [apart(after, judge) for judge in judges],
            "between retrains": [apart(one, other) for one, other in combinations(judges, 2)],
        },
        "moved": {
            name: sum(row["moved"][name] for row in rows) / len(rows) for name in ("RA", "TA")
        },
        # RA and TA are to move by less than 0.3 points.
        "by 0.3 or more": {
            name: sum(abs(row["moved"][name]) >= 0.3 for row in rows) for name in ("RA", "TA")
        },
        "furthest": {
            name: max((row["moved"][name] for row in rows), key=abs) for name in ("RA", "TA")
        },
        "seconds": sum(row["seconds"] for row in rows) / len(rows),
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("out", type=Path)
    words.add_argument("--original", type=Path, required=True)
    words.add_argument("--requests", type=int, default=30)
    words.add_argument("--size", type=int, default=10)
    words.add_argument("--data", type=Path)
    args = words.parse_args()
    original = Run.open(args.original)
    retrains = [Run.open(path) for path in sorted((args.out / "cells" / "retrain").glob("seed*"))]
    tenth = split_of(retrains[0], args.data)
    order = torch.from_numpy(generator("small requests", 0).permutation(len(tenth.forget)))
    # As with studies: a folder named for the original's home.
    home = RESULTS / args.original.resolve().parent.name
    home.mkdir(parents=True, exist_ok=True)
    file = home / f"{args.size}-samples.jsonl"
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    places = [part.sort().values for part in order.split(args.size)][: args.requests]
    for row, chosen in zip(rows, places, strict=False):
        row["retrains"] = judged(tenth, retrains, chosen)  # there may be more of them by now
    for number, chosen in enumerate(places[len(rows) :], len(rows)):
        rows.append(request(original, tenth, retrains, chosen))
        with file.open("a") as lines:
            lines.write(json.dumps(rows[-1]) + "\n")
        print(number, rows[-1]["moved"], flush=True)
    result = summary(rows[: args.requests])
    file.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
