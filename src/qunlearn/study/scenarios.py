"""The paper's experiments: which networks, data and requests, and what can be asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from qunlearn.study.config import Select
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.training.config import ComputeConfig

IMAGES = 5000
Scale = Literal["small", "medium", "paper"]
Variant = Literal["paper", "released"]


@dataclass(frozen=True)
class Scenario:
    """One block of a table: a network on a data set, and a request."""

    dataset: str
    scenario: str
    model: str = "resnet18"
    quantizer: str = "lsq+"
    methods: str = "all"

    @property
    def name(self) -> str:
        """What it is called on the command line and on disk."""
        parts = (self.dataset, self.model, self.quantizer, self.scenario)
        return "-".join(parts).replace(" ", "-").replace("%", "")

    @property
    def folder(self) -> str:
        """Where its cells are kept, beside the original."""
        return self.scenario.replace(" ", "-").rstrip("%")

    @property
    def request(self) -> dict[str, object]:
        """How it is asked."""
        if self.scenario == "one class":
            return {"classes": ("0",)}
        return {"random": int(self.scenario.split()[1].rstrip("%")) / 100}


SHARES = ("random 10%", "random 30%", "random 50%")
ABLATED = "oeu,oeu[alpha=0],oeu[forget_loss=random-label],oeu[granularity=global]"
ENTROPY = "oeu[alpha=0;beta=0],qmul,oeu"

EXPERIMENTS: dict[str, tuple[Scenario, ...]] = {
    "main": tuple(Scenario(d, s) for d in ("cifar10", "cifar100") for s in SHARES),
    "ablation": (
        Scenario("cifar100", "random 30%", methods=ABLATED),
        Scenario("cifar10", "random 10%", methods=ABLATED),
    ),
    "class-wise": tuple(Scenario(d, "one class") for d in ("cifar10", "cifar100")),
    "mobilenetv2": tuple(
        Scenario(d, s, "mobilenetv2") for d in ("cifar10", "cifar100", "svhn") for s in SHARES
    ),
    "tiny-imagenet": (Scenario("tiny-imagenet", "random 10%"),),
    "quantizers": tuple(
        Scenario(d, "random 10%", quantizer=q)
        for d in ("cifar100", "cifar10")
        for q in ("none", "lsq+", "lsq", "pact", "dsq")
    ),
    "runtime": (
        Scenario("cifar100", "random 10%", "mobilenetv2"),
        Scenario("cifar10", "random 10%"),
    ),
    "entropy": (
        Scenario("cifar100", "random 10%", "mobilenetv2", methods=ENTROPY),
        Scenario("cifar10", "random 10%", methods=ENTROPY),
    ),
}
"""The paper's tables and figures; what of ablation, quantizers, runtime and entropy is on CIFAR-10
is ours."""


class ReproduceConfig(ExecutorConfig, ComputeConfig):
    """How much of the paper is reproduced, and how."""

    panel: ClassVar[str] = "The experiment"

    what: str = Field(
        ...,
        description="main, ablation, class-wise, mobilenetv2, tiny-imagenet, quantizers, runtime "
        "or entropy.",
        json_schema_extra={"argument": True},
    )
    scale: Scale = Field(
        "small",
        description="small (a quarter of the width, 5,000 images), medium (a quarter of the width, "
        "all images, 60 epochs), or paper.",
    )
    variant: Variant = Field(
        "paper", description="paper, or released: bits and layers of the earlier public code."
    )
    cells: str | None = Field(
        None, description="Only blocks with this in their names, such as cifar10-resnet18."
    )
    data_dir: Path | None = Field(None, description="Where the data sets' files are.")
    download: bool = Field(
        False, description="Fetch missing files from their official address.", exclude=True
    )
    methods: str | None = Field(
        None,
        description="Only these methods, such as oeu,ft; by default all of the experiment.",
    )
    from_twin: bool = Field(
        False,
        description="Train quantized networks from the full-precision one in a quarter of the "
        "epochs, at the small scale; it and its Retrains are made once for all quantizers.",
    )
    images: int = Field(
        IMAGES, ge=100, description="How many images are taken of the set, at the small scale."
    )
    epochs: int | None = Field(
        None, ge=1, description="Epochs of training and retraining, instead of the scale's."
    )
    seeds: int = Field(2, ge=1, description="How many seeds.")
    settings_from: Path | None = Field(
        None,
        description="A finished comparison's table.json; each method's settings are taken from it.",
    )
    tune: int = Field(0, ge=0, description="Trials of the search for each method, on seed 0.")
    select: Select = Field(
        "oracle",
        description="What the search looks at: Retrain (oracle), as the paper; or heldout.",
    )
