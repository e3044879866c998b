"""Near-duplicates of forgotten samples that are retained, which the network goes on knowing.

A perceptual hash finds images that were resized, cropped, mirrored or recompressed, the network's
own features those that it takes for the same. How alike different samples are is measured on the
retained samples among each other: that sets the threshold, at a stated rate of false alarms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import interpolate

from qunlearn.audit.case import Case
from qunlearn.audit.config import AuditConfig
from qunlearn.audit.registry import Audit, Work, audits
from qunlearn.audit.row import LEVEL, PASS, AuditRow, Figure, Judgement
from qunlearn.data import Split
from qunlearn.data.draw import spread
from qunlearn.data.samples import BLOCK
from qunlearn.metrics.bootstrap import Interval
from qunlearn.quant.convert import edge_layers
from qunlearn.training.inference import predict

SIDE, KEPT = 32, 8
"""Images are scaled to this side; the hash has as many frequencies in each direction."""
COMPARED = 1000
"""Retained samples that the threshold is set by, at most."""
SMALLEST = 8
"""Images with a shorter side have no perceptual hash."""
LISTED = 100
"""Pairs that are listed, at most."""

By = Literal["hash", "features"]


class CopiesConfig(AuditConfig):
    """How alike two samples must be."""

    false_alarms: float = Field(
        0.01, gt=0, le=0.5, description="Share of samples without a copy that are taken for one."
    )


@dataclass(frozen=True)
class Copy:
    """A forgotten sample, and the retained one that is most like it.

    Attributes:
        forgotten: Its id.
        retained: The other's id.
        by: What they are alike in.
        distance: Bits of the hash that differ; or 1 - the cosine of the features.
    """

    forgotten: str
    retained: str
    by: By
    distance: float


@dataclass(frozen=True)
class Flagged:
    """What one way of comparing found.

    Attributes:
        by: What is compared.
        threshold: Samples that are closer than this are flagged.
        flagged: How many forgotten samples are.
        rate: The share of retained samples that are, of those the threshold is set by.
        chance: The probability that so many are flagged by false alarms alone.
    """

    by: By
    threshold: float
    flagged: int
    rate: float
    chance: float


@dataclass(frozen=True)
class CopiesAudit:
    """Near-duplicates of forgotten samples.

    Attributes:
        samples: How many samples were forgotten.
        exact: How many of them are retained under another id, pixel by pixel.
        false_alarms: The rate that was asked for.
        ways: What each way of comparing found.
        copies: The pairs that are alike, the closest first; at most 100.
    """

    samples: int
    exact: int
    false_alarms: float
    ways: tuple[Flagged, ...]
    copies: tuple[Copy, ...]

    def row(self) -> AuditRow:
        """Fails if more samples have a copy than false alarms explain."""
        figures = tuple(
            Figure(f"flagged by {way.by}", float(way.flagged), _share(way, self), unit="samples")
            for way in sorted(self.ways, key=lambda way: way.chance)
        )
        judged = self.judged()
        return AuditRow(
            "copies",
            ("network", "samples"),
            figures,
            judged.verdict,
            judged.reason,
            detail=judged.detail,
        )

    def judged(self) -> Judgement:
        """The verdict, and what decided it."""
        if self.exact:
            return Judgement("fail", "exact copies", {"samples": self.exact})
        beyond = [way for way in self.ways if way.chance < LEVEL / len(self.ways)]
        if beyond:
            way = min(beyond, key=lambda way: way.chance)
            detail = {"samples": way.flagged, "by": way.by}
            return Judgement("fail", "near-duplicates", detail)
        flagged = max(way.flagged for way in self.ways)
        return Judgement("pass", "false alarms", {"samples": flagged}) if flagged else PASS


def _share(way: Flagged, audit: CopiesAudit) -> Interval:
    from scipy.stats import binomtest

    ends = binomtest(way.flagged, audit.samples).proportion_ci(method="wilson")
    return Interval(audit.samples * float(ends.low), audit.samples * float(ends.high))


def copies(case: Case, settings: CopiesConfig) -> CopiesAudit:
    """Look for near-duplicates of forgotten samples among the retained; see `CopiesAudit`."""
    split, rate = case.split, settings.false_alarms
    model = case.model if case.before is None else case.before  # which knew them all
    ways = [by_features(split, model)]
    if split.data.images.dim() == 4 and min(split.data.images.shape[2:]) >= SMALLEST:
        ways.insert(0, by_hash(split))
    flags, pairs = [], []
    for by, near in (("hash" if n.bits else "features", n) for n in ways):
        way: By = "hash" if by == "hash" else "features"
        threshold = threshold_at(near.different, rate)
        close = (near.distances < threshold).nonzero().flatten().tolist()
        share = float((near.different < threshold).double().mean())
        flags.append(
            Flagged(way, threshold, len(close), share, _chance(len(close), len(split.forget), rate))
        )
        ids = split.data.ids
        pairs += [
            Copy(
                ids[int(split.forget[i])],
                ids[int(split.retain[near.nearest[i]])],
                way,
                float(near.distances[i]),
            )
            for i in close
        ]
    pairs.sort(key=lambda pair: (pair.by != "hash", pair.distance))
    exact = len(split.duplicates())
    return CopiesAudit(len(split.forget), exact, rate, tuple(flags), tuple(pairs[:LISTED]))


def _chance(flagged: int, samples: int, rate: float) -> float:
    from scipy.stats import binom

    return float(binom.sf(flagged - 1, samples, rate))


def threshold_at(different: Tensor, rate: float) -> float:
    """The distance that at most this share of different samples is below.

    >>> threshold_at(torch.arange(100.0), 0.05)
    5.0
    """
    return float(different.sort().values[min(int(rate * len(different)), len(different) - 1)])


@dataclass(frozen=True)
class Nearest:
    """The nearest retained sample of each forgotten one, and of some retained ones.

    Attributes:
        distances: From each forgotten sample to the nearest retained one.
        nearest: Which one that is.
        different: From retained samples to the nearest other retained one.
        bits: Whether distances count bits.
    """

    distances: Tensor
    nearest: Tensor
    different: Tensor
    bits: bool


def by_hash(split: Split) -> Nearest:
    """Nearest by perceptual hash: either of the two may be mirrored or cropped."""

    def hashes(index: Tensor) -> Tensor:
        return torch.stack([perceptual_hash(split.data.images[index], view) for view in VIEWS], 1)

    return nearest(split, hashes, _differing_bits, bits=True)


def by_features(split: Split, model: nn.Module) -> Nearest:
    """Nearest by the cosine of the features: what goes into the network's last layer."""
    describe = partial(features, model, split)
    return nearest(split, describe, lambda one, other: 1 - one @ other.T, bits=False)


def nearest(
    split: Split,
    describe: Callable[[Tensor], Tensor],
    distance: Callable[[Tensor, Tensor], Tensor],
    bits: bool,
) -> Nearest:
    """Compare by a description of each sample.

    The retained samples pass block by block: neither their images nor their descriptions have to
    fit into memory.
    """
    queries = torch.cat([split.forget, spread(split.retain, COMPARED)])
    described = torch.cat([describe(block) for block in torch.split(queries, BLOCK)])
    lowest = torch.full((len(queries),), torch.inf, dtype=torch.float64)
    place = torch.zeros(len(queries), dtype=torch.int64)
    for number, block in enumerate(torch.split(split.retain, BLOCK)):
        distances = distance(described, describe(block))
        distances[queries[:, None] == block] = torch.inf  # the same sample
        least = distances.min(1)
        closer = least.values < lowest
        lowest[closer] = least.values[closer].double()
        place[closer] = number * BLOCK + least.indices[closer]
    count = len(split.forget)
    return Nearest(lowest[:count], place[:count], lowest[count:], bits)


def _differing_bits(one: Tensor, other: Tensor) -> Tensor:
    """Bits that differ between two samples, at least: only one of them is mirrored or cropped."""
    best = torch.full((len(one), len(other)), torch.inf)
    pairs = [(view, 0) for view in range(len(VIEWS))]
    pairs += [(0, view) for view in range(1, len(VIEWS))]
    for first, second in pairs:
        bits = (KEPT * KEPT - one[:, first] @ other[:, second].T) / 2
        torch.minimum(best, bits, out=best)
    return best


View = tuple[float, float, float, bool]
"""Where a crop begins, down and across, how large it is, and whether it is mirrored; shares."""
VIEWS: tuple[View, ...] = (
    (0.0, 0.0, 1.0, False),
    (0.0, 0.0, 1.0, True),
    (0.05, 0.05, 0.9, False),
    (0.1, 0.1, 0.8, False),
    (0.0, 0.0, 0.875, False),
    (0.0, 0.125, 0.875, False),
    (0.125, 0.0, 0.875, False),
    (0.125, 0.125, 0.875, False),
)


def perceptual_hash(images: Tensor, view: View = VIEWS[0]) -> Tensor:
    """The 64-bit perceptual hash of each image, as numbers of -1 and 1.

    The image in grey is scaled to 32 × 32; of its cosine transform (DCT-II) the lowest 8 × 8
    frequencies are compared with their median.

    >>> images = torch.rand(2, 3, 20, 30, generator=torch.Generator().manual_seed(0))
    >>> hashes = perceptual_hash(images)
    >>> hashes.shape, bool((hashes == perceptual_hash(0.5 * images + 0.1)).all())
    (torch.Size([2, 64]), True)
    """
    down, across, size, mirrored = view
    grey = images.float().mean(1)
    height, width = grey.shape[1:]
    # Cropping, scaling and the transform are linear, and each works on rows and columns alone.
    rows = _frequencies(height, down, size, mirrored=False)
    columns = _frequencies(width, across, size, mirrored)
    content = (rows @ grey @ columns.T).flatten(1)
    return torch.where(content > content[:, 1:].median(1, keepdim=True).values, 1.0, -1.0)


def _frequencies(length: int, start: float, share: float, mirrored: bool) -> Tensor:
    """The matrix from a row of pixels to its lowest frequencies, once cropped and scaled."""
    from scipy.fft import dct

    first = round(start * length)
    count = max(2, min(round(share * length), length - first))
    crop = torch.eye(length)[first : first + count]
    # Area-averaging where it shrinks, as image libraries do.
    scaled = interpolate(
        crop[None, None], size=(SIDE, length), mode="bilinear", antialias=True, align_corners=False
    )[0, 0]
    transform = torch.from_numpy(np.asarray(dct(np.eye(SIDE), axis=0, norm="ortho"))).float()
    scaled = scaled.flip(0) if mirrored else scaled
    return transform[:KEPT] @ scaled


def features(model: nn.Module, split: Split, index: Tensor) -> Tensor:
    """What goes into the last layer for each sample, scaled to length 1."""
    rows: list[Tensor] = []
    last = dict(model.named_modules())[edge_layers(model)[1]]

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        rows.append(inputs[0].detach().flatten(1).double().cpu())

    handle = last.register_forward_pre_hook(keep)
    try:
        predict(model, split.data, index)
    finally:
        handle.remove()
    content = torch.cat(rows)
    return content / content.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)


def work(case: Case, settings: CopiesConfig) -> Work:
    """Features of each sample once, and every pair compared."""
    split = case.split
    samples = len(split.retain) + len(split.forget)
    pairs = len(split.retain) * (len(split.forget) + min(COMPARED, len(split.retain)))
    return Work(samples, seconds=1e-4 * samples + 3e-8 * pairs * 2 * len(VIEWS))


audits.register("copies")(
    Audit(
        rank=30,
        config=CopiesConfig,
        finding=CopiesAudit,
        attack=copies,
        work=work,
        summary="Look for near-duplicates of forgotten samples that are retained.",
        help="""Compares every forgotten sample with every retained one: by perceptual hash
        (resized, cropped, mirrored, recompressed), and by the network's own features. The threshold
        is set by how alike retained samples are among each other, at a stated rate of false
        alarms.""",
        examples=("", "--false-alarms 0.001"),
    )
)
