"""People made of images: a metadata column whose users each own a cluster of similar images.

    python benchmarks/users.py DATASET OUT.csv [--data-dir DIR] [--subset 5000] [--users 45]

What one person asks to be forgotten is no random share of the data: their images resemble each
other. Images are averaged over blocks of 4×4 pixels and grouped by k-means. Prints the user whose
number of training images is nearest to a hundred, on whom the check of
`docs/explain/calibration.md` is made.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import torch
from sklearn.cluster import KMeans
from torch.nn.functional import avg_pool2d

from qunlearn.data import load_dataset

WANTED = 100


def main() -> None:
    """Write the column, and name a user."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("dataset")
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--data-dir", type=Path)
    arguments.add_argument("--subset", type=int, default=5000)
    arguments.add_argument("--users", type=int, default=45)
    given = arguments.parse_args()
    data = load_dataset(given.dataset, data_dir=given.data_dir, subset=given.subset)
    rows = (~data.is_test).nonzero().squeeze(1)
    small = avg_pool2d(data.images[rows].float(), 4).flatten(1)
    users = KMeans(given.users, n_init=3, random_state=0).fit_predict(small.numpy())
    with given.out.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("id", "user"))
        table.writerows(
            (data.ids[row], user) for row, user in zip(rows.tolist(), users, strict=True)
        )
    counts = torch.bincount(torch.as_tensor(users))
    chosen = int((counts - WANTED).abs().argmin())
    print(f"user {chosen}: {int(counts[chosen])} images")


if __name__ == "__main__":
    main()
