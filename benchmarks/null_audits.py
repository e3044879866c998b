"""Audits of networks whose answer is known: how often does each audit fail them?

    python benchmarks/null_audits.py [--runs 20]

A small W4A8 network memorises digits of which a third have labels by chance. Of each of N Retrains,
compared with another, no audit should fail more often than its level of 5 %. The original, and the
original with another last layer that hides what was forgotten, should always fail; there are three
runs of each. Retrains serve once, so that the runs are independent but for the samples. Writes
`results/audits/null.json`; what is there is not made again. It takes about ten minutes. `copies`
is not here: it looks at the data, and says the same of every network.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import nn

import qunlearn as qu
from qunlearn.audit import LEVEL, Case, NotApplicable, audited, audits
from qunlearn.data import Split
from qunlearn.store.files import make_folder, read_json, write_json
from qunlearn.training.config import ComputeConfig
from qunlearn.training.devices import make_fabric

FILE = Path(__file__).parent / "results" / "audits" / "null.json"
AUDITS = ("relearn", "differ", "bits")
KNOWN_RUNS = 3
"""Runs of each network that should fail."""
SPEC = qu.QuantSpec(4, 8)
TRAINING = {"epochs": 25, "batch_size": 32, "lr": 0.05}
NULL = "Retrain"
"""The network that should pass."""
CERTAIN = 0.99
"""Fewer failures than `most` have this probability, at the level."""


def noisy_digits() -> Split:
    """Digits of which a third have labels by chance: what is known of those is remembered."""
    digits, chance = qu.load_dataset("digits"), np.random.default_rng(0)
    images = digits.images.permute(0, 2, 3, 1).numpy()
    labels = digits.labels.numpy().copy()
    noisy = chance.random(len(labels)) < 1 / 3
    labels[noisy] = chance.integers(0, 10, int(noisy.sum()))
    half = len(labels) // 2
    data = qu.Data(train=(images[:half], labels[:half]), test=(images[half:], labels[half:]))
    return Split.random(data, fraction=0.2, held_out=0.2)


def network(seed: int) -> nn.Module:
    """A perceptron of three layers."""
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()]
    return qu.quantize(nn.Sequential(*layers, nn.Linear(64, 10)), SPEC)


def retrained(split: Split, seed: int) -> nn.Module:
    """A Retrain."""
    return qu.train(network(seed), split, part="retain", seed=seed, **TRAINING)


def hiding(original: nn.Module, split: Split, seed: int) -> nn.Module:
    """The original with another last layer, as confident on forgotten samples as on unseen ones."""
    net, labels = copy.deepcopy(original).eval(), split.data.labels
    generator = torch.Generator().manual_seed(seed)
    last, parts = net[-1], (split.forget, split.retain)
    with torch.no_grad():
        known = [net[:-1](split.data.normalise(split.data.images[part])) for part in parts]
    wrong = torch.randint(1, 10, (len(split.forget),), generator=generator)
    others = (labels[split.forget] + wrong) % 10
    optimizer = torch.optim.Adam([last.weight, last.bias], 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(last(known[0]), others)
        (loss + nn.functional.cross_entropy(last(known[1]), labels[split.retain])).backward()
        optimizer.step()
    return net


def verdicts(case: Case) -> dict[str, str]:
    """Each audit's verdict."""
    given = {}
    for name in AUDITS:
        settings = audits[name].config.parse({"seed": case.seed, "threads": 1})
        try:
            given[name] = audited(name, case, settings).row.verdict
        except NotApplicable:
            given[name] = "cannot be told"
    return given


def main() -> None:
    """Audit what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    make_folder(asked.out.parent)
    rows = read_json(asked.out)["verdicts"] if asked.out.is_file() else []
    split, fabric = noisy_digits(), make_fabric(ComputeConfig(threads=1))
    original = qu.train(network(0), split, **TRAINING)
    made: dict[str, Callable[[int], nn.Module]] = {
        NULL: lambda seed: retrained(split, 2 * seed + 1),
        "original": lambda seed: original,
        "last layer changed": lambda seed: hiding(original, split, seed),
    }
    for seed in range(asked.runs):
        names = made if seed < KNOWN_RUNS else [NULL]
        missing = [n for n in names if (n, seed) not in {(r["network"], r["seed"]) for r in rows}]
        if not missing:
            continue
        reference = retrained(split, 2 * seed + 2)
        for name in missing:
            case = Case(
                made[name](seed),
                split,
                before=original,
                retrain=reference,
                quant=SPEC,
                fabric=fabric,
                seed=seed,
            )
            rows.append({"network": name, "seed": seed, **verdicts(case)})
            write_json(asked.out, summary(rows, list(made)))
            print(rows[-1], flush=True)


def summary(rows: list[dict[str, Any]], networks: list[str]) -> dict[str, Any]:
    """How often each audit failed each network, and how often is within its level."""
    own = {name: [row for row in rows if row["network"] == name] for name in networks}
    null = len(own[NULL])
    return {
        "audits": list(AUDITS),
        "null_runs": null,
        "most": int(binom.ppf(CERTAIN, null, LEVEL)),
        "networks": {
            name: {
                "runs": len(mine),
                "failed": {a: sum(row[a] == "fail" for row in mine) for a in AUDITS},
            }
            for name, mine in own.items()
        },
        "verdicts": rows,
    }


if __name__ == "__main__":
    main()
