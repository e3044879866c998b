"""A network of a pool before unlearning: the original's recipe, on its own samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field

from qunlearn.audit.config import AuditConfig
from qunlearn.audit.pool_folder import Pool
from qunlearn.data.manifest_key import ManifestKey
from qunlearn.errors import Failure, UserError
from qunlearn.quant import quantize
from qunlearn.runs.config import ModelConfig
from qunlearn.runs.data_config import DataConfig
from qunlearn.runs.model_file import Header, spec_of
from qunlearn.runs.train import header_of, launch_run, optimizer_of, train_into
from qunlearn.store.place import check_reached
from qunlearn.store.run import Run
from qunlearn.store.start import AnotherRun
from qunlearn.study.executors.needs import Need, data_need, run_need
from qunlearn.training.config import ComputeConfig, OptimizerConfig
from qunlearn.training.devices import make_fabric
from qunlearn.training.train import check_fits


class PoolNetworkConfig(DataConfig, ModelConfig, OptimizerConfig, ComputeConfig):
    """What makes a network of a pool: the original's recipe, on its own samples."""

    panel: ClassVar[str] = "A network of a pool"

    pool: str = Field(..., description="The digest of the pool's plan.")
    number: int = Field(..., ge=0, description="Which network of the pool.")


@dataclass(frozen=True)
class Training:
    """The training of a network, which an executor makes.

    Attributes:
        find: Finds the pool of an original at a path: another process loads the data itself.
        origin: The original's run.
        config: Which pool, where the data is now, and how many threads.
        digest: The digest of the pool's plan.
        number: Which network.
        seed: The network's own seed.
        path: The folder that its run is kept in.
        method: What is done, for the display.
    """

    find: Callable[[Path, Any], Pool]
    origin: Path
    config: AuditConfig
    digest: str
    number: int
    seed: int
    path: Path
    method: str = "train"

    @property
    def done(self) -> bool:
        """Whether its run is there."""
        return Run.is_complete(self.path)

    def check(self) -> None:
        """Raise if a link leads there, or the finished run there belongs to another pool."""
        check_reached(self.path)
        if self.done and Run.open(self.path).config.get("pool") != self.digest:
            raise UserError(
                f"The run {str(self.path)!r} belongs to another pool; name another folder with "
                "--pool."
            )

    def needs(self) -> tuple[Need, ...]:
        """The original and its data."""
        return run_need("run", self.origin), data_need(self.origin, self.config.data)

    def place(self) -> DataConfig:
        """Where the data is on this machine."""
        return self.find(self.origin, self.config).place

    def make(self) -> None:
        """Train it, or resume its training."""
        self.make_at(self.path, {}, None)

    def make_at(self, path: Path, paths: Mapping[str, Path], data: DataConfig | None) -> None:
        """Train it in a folder, from what is at these places here; its record names its own."""
        config = self.config
        if "data_path" in paths:
            config = config.model_copy(update={"data": paths["data_path"]})
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        pool = self.find(paths.get("run", self.origin), config)
        if pool.plan.digest != self.digest:
            raise Failure(
                "The samples of the pool are drawn otherwise here than on the machine that was "
                "given the command; install the same version of numpy on both."
            )
        self._train(pool, data or pool.place, path)

    def _train(self, pool: Pool, place: DataConfig, path: Path) -> None:
        header = Header.read(pool.origin.model_path)
        training = {k: v for k, v in pool.plan.training.items() if k != "original"}
        identity = {"seed": self.seed, "pool": pool.plan.digest, "number": self.number}
        threads = {} if self.config.threads is None else {"threads": self.config.threads}
        config = PoolNetworkConfig.parse({**place.to_dict(), **training, **threads, **identity})
        spec = replace(
            spec_of(header, self.config.model, str(pool.origin.path)), width=float(config.width)
        )
        split = pool.plan.split_of(self.number)
        key = ManifestKey.read(path) or split.key or ManifestKey.of_data(split.data.name)
        split = split.with_key(key)
        model = quantize(spec.build(config.seed), header.quant)
        check_fits(model, split.data, split.train, config, config.devices)
        work = partial(
            train_into,
            model=model,
            split=split,
            header=header_of(spec, header.quant, split),
            optimizer=optimizer_of(config),
        )
        train = partial(launch_run, make_fabric(config), path, config, split)
        try:
            train(True, work, ("dataset", "data_dir"))
        except AnotherRun:  # left by other settings of the machine
            Run.discard(path)
            train(False, work, ("dataset", "data_dir"))
