"""A pool on disk: where its networks are, and what they answered."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from pydantic import Field
from torch import Tensor

from qunlearn.audit.config import AuditConfig
from qunlearn.audit.pool_attacks import PoolMargins
from qunlearn.audit.pool_plan import MOST_MODELS, PoolPlan, drawn_plan
from qunlearn.audit.row import NotApplicable
from qunlearn.data import Split
from qunlearn.methods import find_method
from qunlearn.metrics import margin
from qunlearn.runs.data import data_config, located
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.model_file import Header, spec_of
from qunlearn.runs.outputs import outputs_of
from qunlearn.runs.recipe import recipe_of
from qunlearn.store.run import Run
from qunlearn.training.config import Epochs

TRAINED, UNLEARNED_BY, LISTS = "trained", "unlearned", "ids"
"""Folders in a pool: networks, the same after unlearning, and what each of them unlearns."""
POOL, LIST = re.compile("[0-9a-f]{12}"), re.compile(r"\d{3,}\.txt")
"""Names of pools, and of the lists of what a network unlearns."""
ORIGINAL = "original"
"""Stands for a method that does nothing: the networks before unlearning."""


class PoolConfig(AuditConfig):
    """Which pool: how many networks, how small, and where they are kept."""

    models: int = Field(16, ge=6, le=MOST_MODELS, description="How many networks.")
    candidates: float = Field(
        0.3,
        gt=0,
        lt=1,
        description="The share of the training samples that are in some networks and out of "
        "others; a third of it is unlearned.",
    )
    subset: int | None = Field(
        None, gt=0, description="Train each network on about N of the samples; all by default."
    )
    epochs: Epochs | None = Field(
        None, description="Epochs of a network; the original's by default."
    )
    width: float | None = Field(
        None, gt=0, le=16, description="Width multiplier of a network; the original's by default."
    )
    pool: Path | None = Field(
        None,
        description="The folder of pools; beside the run by default. Other requests and "
        "methods share the networks in it.",
    )


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool of an original.

    Attributes:
        origin: The original's run.
        plan: Which samples are in which network.
        folder: Where the networks are.
        place: Where the original's data is now.
    """

    origin: Run
    plan: PoolPlan
    folder: Path
    place: DataConfig

    def trained(self, number: int) -> Path:
        """The run of a network before unlearning."""
        return self.folder / TRAINED / f"{number:03d}"

    def ids(self, number: int) -> Path:
        """The list of what a network unlearns."""
        return self.folder / LISTS / f"{number:03d}.txt"

    def unlearned(self, method: str, settings: Mapping[str, object], number: int) -> Path:
        """The run of a network after unlearning; `trained` for the original."""
        if method == ORIGINAL:
            return self.trained(number)
        content = {"settings": dict(settings), "revision": find_method(method).revision}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        name = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in method)
        return self.folder / UNLEARNED_BY / f"{name}-{digest[:8]}" / f"{number:03d}"

    def margins(self, method: str, settings: Mapping[str, object]) -> PoolMargins:
        """What the networks answered, before unlearning and after it by a method."""
        rows: dict[str, list[Tensor]] = {"trained": [], "unlearned": []}
        for number in range(self.plan.models):
            split = self.plan.split_of(number)
            for name, path in (
                ("trained", self.trained(number)),
                ("unlearned", self.unlearned(method, settings, number)),
            ):
                if not Run.is_complete(path):
                    raise NotApplicable(
                        f"The pool has no network {number} yet: `qunlearn audit pool` makes it, in "
                        f"{str(self.folder)!r}."
                    )
                asked = name == "unlearned" and method != ORIGINAL
                after = split.forget_ids(self.plan.ids(number)) if asked else split
                rows[name].append(_margins(Run.open(path), after))
        trained, unlearned = (torch.stack(rows[name]) for name in ("trained", "unlearned"))
        at, unseen = self.plan.candidates, self.plan.split.held_out
        return PoolMargins(
            self.plan.states,
            trained[:, at],
            unlearned[:, at],
            trained[:, unseen],
            unlearned[:, unseen],
        )


def pool_above(run: Path) -> Path | None:
    """The folder of the pool that a run belongs to, by where it lies; None if to none."""
    if run.parent.name == TRAINED:
        pool = run.parents[1]
    elif len(run.parents) > 2 and run.parents[1].name == UNLEARNED_BY:
        pool = run.parents[2]
    else:
        return None
    is_pool = POOL.fullmatch(pool.name) and (pool / TRAINED).is_dir()
    return pool if is_pool else None


def _margins(run: Run, split: Split) -> Tensor:
    """The margin of each sample of the data; NaN where the run has no output for it."""
    outputs, values = outputs_of(run, split), torch.full((len(split.data),), torch.nan)
    for part, index in split.measured().items():
        values[index] = margin(outputs[part].float(), split.data.labels[index])
    return values


def training_of(origin: Run, factory: str | None) -> dict[str, object]:
    """How a network is trained as a run's was; raises if that cannot be repeated."""
    recipe = recipe_of(origin)
    if not recipe.from_scratch or not recipe.training:
        raise NotApplicable(
            f"The network of {str(origin.path)!r} was adopted or trained from another, so that "
            "none can be trained as it was; audit it by other attacks."
        )
    spec = spec_of(Header.read(origin.model_path), factory, str(origin.path))
    return {**recipe.training, "model": spec.name, "width": spec.width}


def pool_of(origin: Path, config: PoolConfig, request: tuple[str, ...] = ()) -> Pool:
    """The pool of an original; `request` names the samples of a coherent request, if any."""
    return _pool_of(origin, config.model_copy(update={"threads": None}), request)


@cache
def _pool_of(origin: Path, config: PoolConfig, request: tuple[str, ...]) -> Pool:
    run = Run.open(origin)
    size = {name: value for name in ("epochs", "width") if (value := getattr(config, name))}
    training = training_of(run, config.model) | size
    place, split = located(run, data_config(run), config.data)
    if len(split.held_out) < 2:
        raise NotApplicable(
            f"The run {str(origin)!r} has no held-out samples, which the attacks compare with; "
            "train or adopt it with --held-out."
        )
    plan = drawn_plan(
        split,
        models=config.models,
        share=config.candidates,
        subset=config.subset,
        request=split.data.index_of(request).sort().values if request else None,
        seed=config.seed,
        training=training | {"original": run.info.model_sha256},
    )
    home = config.pool or origin.with_name(f"{origin.name}-pool")
    return Pool(run, plan, home / plan.digest[:12], place)
