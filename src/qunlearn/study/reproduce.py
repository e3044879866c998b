"""`qunlearn reproduce`: the paper's experiments, at its size or at one that two cores finish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qunlearn.errors import UserError, unknown
from qunlearn.runs.config import TrainConfig
from qunlearn.runs.data import load_data
from qunlearn.runs.provenance import provenance_of, separated
from qunlearn.runs.train import train_run
from qunlearn.store.place import named
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.study.compare import compare_run, planned, retrain_all
from qunlearn.study.config import CompareConfig
from qunlearn.study.executors.base import Executor
from qunlearn.study.executors.config import ExecutorConfig
from qunlearn.study.executors.open import opened_executor
from qunlearn.study.paper import PaperRow, Stated, printed, stated
from qunlearn.study.scenarios import EXPERIMENTS, IMAGES, ReproduceConfig, Scenario
from qunlearn.study.table import Table
from qunlearn.training.config import ComputeConfig


@dataclass(frozen=True)
class Block:
    """A block that is made: our table, and what the paper has.

    Attributes:
        name: The block's name.
        dataset: Its data set.
        quantizer: Its quantizer.
        folder: Where the comparison is.
        table: Ours.
        paper: The paper's rows, by method; empty if it has none.
        stated: What the paper's text says of figures without numbers.
    """

    name: str
    dataset: str
    quantizer: str
    folder: Path
    table: Table
    paper: Mapping[str, PaperRow]
    stated: Sequence[Stated]

    def below(self, method: str, other: str) -> float | None:
        """By how many percent a method's AG is below another's; None if one of them is missing."""
        gaps = {row.method: row.AG[0] for row in self.table.methods}
        if method not in gaps or not gaps.get(other):
            return None
        return 100 * (1 - gaps[method] / gaps[other])

    def to_json(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "block": self.name,
            "dataset": self.dataset,
            "quantizer": self.quantizer,
            "folder": str(self.folder),
            "table": self.table.to_json(),
            "paper": {name: vars(row) for name, row in self.paper.items()},
            "stated": [vars(row) for row in self.stated],
        }


def reproduce(config: ReproduceConfig, out: Path) -> Iterator[Block]:
    """Make what is missing of an experiment; each block's table with the paper's, as it is done."""
    with named(out):
        blocks = chosen(config)
        with opened_executor(config, out) as executor:
            yield from _reproduced(config, out, blocks, executor)


def _reproduced(
    config: ReproduceConfig, out: Path, blocks: Sequence[Scenario], executor: Executor
) -> Iterator[Block]:
    recipes = [TrainConfig.parse(training(block, config, out)) for block in blocks]
    homes = [out / home_of(block, config) for block in blocks]
    for twin in filter(None, (twin_of(block, config) for block in blocks)):
        twin_recipe = TrainConfig.parse(training(twin, config, out))
        check_original(out / home_of(twin, config) / "original", twin_recipe)
    for home, recipe in zip(homes, recipes, strict=True):
        check_original(home / "original", recipe)
    # Whatever is wrong is said before hours of training.
    for block, home in zip(blocks, homes, strict=True):
        planned(comparison(block, config, home / "original", out))
    todo = [r for r, h in zip(recipes, homes, strict=True) if not Run.is_complete(h / "original")]
    for recipe in {recipe.dataset: recipe for recipe in todo}.values():
        load_data(recipe)
    for block, recipe, home in zip(blocks, recipes, homes, strict=True):
        original = home / "original"
        if base := twin_of(block, config):
            make_twin(base, config, out, executor)
            check_original(original, recipe)  # it may be from a twin that is gone
        make_original(original, recipe)
        # Experiments that ask the same of the same network share their cells, not their table.
        cells = home / block.folder
        compare = comparison(block, config, original, out)
        table = compare_run(compare, cells / config.what, cells, executor)
        # The paper's figures are of LSQ+, where the released code has LSQ.
        usual = block.quantizer == ("lsq" if config.variant == "released" else "lsq+")
        yield Block(
            name=block.name,
            dataset=block.dataset,
            quantizer=block.quantizer,
            folder=cells / config.what,
            table=table,
            paper=printed(block.dataset, block.model, block.scenario) if usual else {},
            stated=stated(config.what, block.dataset, "lsq+" if usual else block.quantizer),
        )


def home_of(block: Scenario, config: ReproduceConfig) -> str:
    """The folder of a block's network."""
    size = "" if config.images == IMAGES else f"-{config.images}-images"
    size = {"small": size, "medium": "-all-images", "paper": "-full-size"}[config.scale]
    size += "" if config.epochs is None else f"-{config.epochs}-epochs"
    twin = "-from-twin" if twin_of(block, config) else ""
    return f"{block.dataset}-{block.model}-{block.quantizer}-{config.variant}{size}{twin}"


def twin_of(block: Scenario, config: ReproduceConfig) -> Scenario | None:
    """The block in full precision that a network is trained from, if it is to be."""
    if not config.from_twin or block.quantizer == "none":
        return None
    return replace(block, quantizer="none")


def make_twin(twin: Scenario, config: ReproduceConfig, out: Path, executor: Executor) -> None:
    """Train the full-precision network and its Retrains, where they are not there yet."""
    home = out / home_of(twin, config)
    make_original(home / "original", TrainConfig.parse(training(twin, config, out)))
    compare = comparison(twin, config, home / "original", out)
    retrain_all(compare, home / twin.folder, executor)


def check_original(path: Path, recipe: TrainConfig) -> None:
    """Raise if there is an original that was trained otherwise."""
    if not Run.is_complete(path):
        return
    original = Run.open(path)
    trained = TrainConfig.parse(separated(original.config))
    elsewhere = {*ComputeConfig.model_fields, "data_dir", "cache_dir", "download"}
    elsewhere |= {"start_from", "provenance"}
    start = recipe.start_from
    start_info = Run.open(start).info if start and Run.is_complete(start) else None
    if start_info and start_info.model_sha256 != provenance_of(original).start:
        raise UserError(
            f"The original {str(path)!r} was trained from another network than {str(start)!r} "
            "holds now; move it away, or name a new folder with --out."
        )
    for name in TrainConfig.model_fields.keys() - elsewhere:
        was, now = getattr(trained, name), getattr(recipe, name)
        if was != now:
            raise UserError(
                f"The original {str(path)!r} was trained with {name} = {was!r}, not {now!r}; "
                "move it away, or name a new folder with --out."
            )


def make_original(path: Path, recipe: TrainConfig) -> None:
    """Train it, or resume its training."""
    if Run.is_complete(path):
        return
    try:
        train_run(recipe, path, resume=True)
    except AnotherRun:  # begun by another recipe, and never finished
        Run.discard(path)
        train_run(recipe, path)


def training(block: Scenario, config: ReproduceConfig, out: Path) -> dict[str, object]:
    """How the original is trained, and from what, if not from scratch."""
    twin = twin_of(block, config)
    start = {"start_from": out / home_of(twin, config) / "original"} if twin else {}
    return {**recipe_of(block, config), **start}


def comparison(
    block: Scenario, config: ReproduceConfig, original: Path, out: Path
) -> CompareConfig:
    """What a block asks of its network."""
    shared = (*ComputeConfig.model_fields, *ExecutorConfig.model_fields)
    shared += ("seeds", "settings_from", "tune", "select")
    shared_values = {name: getattr(config, name) for name in shared} | {
        "data_path": config.data_dir
    }
    settings = {"retrain.epochs": config.epochs or 160} if config.scale == "paper" else {}
    methods = config.methods or block.methods
    request = {"run": original, "methods": methods, "settings": settings, **block.request}
    if twin := twin_of(block, config):
        request["retrains_from"] = out / home_of(twin, config) / twin.folder
    return CompareConfig.parse(
        {**{k: v for k, v in shared_values.items() if v is not None}, **request}
    )


def chosen(config: ReproduceConfig) -> list[Scenario]:
    """The blocks that are asked for."""
    if config.what not in EXPERIMENTS:
        raise unknown("experiment", config.what, EXPERIMENTS)
    if config.scale != "small" and config.images != IMAGES:
        raise UserError(
            f"--images {config.images} is for the small scale; leave it out with --scale "
            f"{config.scale}, which takes the whole set."
        )
    if config.scale != "small" and config.from_twin:
        raise UserError(
            f"--from-twin is for the small scale; leave it out with --scale {config.scale}, which "
            "trains from scratch as the paper does."
        )
    blocks = EXPERIMENTS[config.what]
    if config.variant == "released":  # whose quantizer is LSQ
        variants = (replace(b, quantizer="lsq") if b.quantizer == "lsq+" else b for b in blocks)
        blocks = tuple(dict.fromkeys(variants))
    # Whole words: cifar10 is not to find cifar100.
    matching = [b for b in blocks if not config.cells or f"-{config.cells}-" in f"-{b.name}-"]
    if not matching:
        raise UserError(
            f"No block of {config.what!r} has {config.cells!r} in its name; blocks are "
            f"{', '.join(block.name for block in blocks)}."
        )
    return matching


def recipe_of(block: Scenario, config: ReproduceConfig) -> dict[str, object]:
    """How the original is trained."""
    released = config.variant == "released"
    mobile = block.model == "mobilenetv2"
    recipe: dict[str, object] = {
        "dataset": block.dataset,
        "model": block.model,
        "quantizer": block.quantizer,
        **{name: getattr(config, name) for name in ComputeConfig.model_fields},
    }
    if block.dataset != "digits":
        recipe |= {"data_dir": config.data_dir, "download": config.download}
    if block.quantizer != "none":
        recipe["weight_bits"] = 2 if mobile else 4
        recipe["act_bits"] = 32 if mobile else 8 if released else 4
    if released:
        recipe |= {"first_last_bits": 32, "keep": ("*.shortcut.*",) if not mobile else ()}
    epochs = {} if config.epochs is None else {"epochs": config.epochs}
    if config.scale == "paper":
        return recipe | {"width": 0.5 if released and mobile else 1.0} | epochs
    small: Mapping[str, object] = {
        "subset": config.images,
        "width": 0.5 if mobile else 0.25,
        "epochs": 80,
        "batch_size": 64,
        "lr": 0.05,
        "warmup": 2,
    }
    if config.scale == "medium":
        small = {**small, "subset": None, "epochs": 60}
    if twin_of(block, config):
        small = {**small, "epochs": 20, "lr": 0.01, "warmup": 1}
    return {**recipe, **small, **epochs}
