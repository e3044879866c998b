"""The way in from Python: train, forget, see whether it forgot, save what came of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from qunlearn.data import Split
from qunlearn.errors import UserError
from qunlearn.methods import Forgotten, find_method
from qunlearn.methods.forget import forget as run_method
from qunlearn.runs.evaluate import predictions, scores_of
from qunlearn.runs.metrics import RunMetrics, forgotten_metrics
from qunlearn.runs.save import Made, save_forgotten, save_original
from qunlearn.store.history import Epoch
from qunlearn.store.info import RunInfo
from qunlearn.store.run import Run
from qunlearn.training.config import OptimizerConfig
from qunlearn.training.train import train as run_training

if TYPE_CHECKING:
    from qunlearn.report.verdict import Verdict

Rows = Callable[[Epoch], None]


def train(
    model: nn.Module,
    split: Split,
    *,
    part: str = "train",
    save: str | Path | None = None,
    factory: str | None = None,
    data: bool | str | Path | None = None,
    on_epoch: Rows = lambda row: None,
    **settings: Any,
) -> nn.Module:
    """Train a model on one part of a split, in place, and return it in eval mode.

    Args:
        model: Any classifier; quantized by `quantize` or in full precision.
        split: Says which samples.
        part: "train", or "retain" to leave out what is to be forgotten.
        save: A new folder to keep it in, as a run that every command takes; see `save`.
        factory: With `save`: what builds the network, as "package.module:name".
        data: With `save`: whether, or in which .npz file, to keep the samples too.
        on_epoch: Gets a row of numbers after each epoch.
        **settings: Those of `OptimizerConfig`, such as `epochs=10, lr=0.05`; also `fabric` (devices
            and precision) and `checkpoint` (a file to resume from).

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.make(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
    """
    if save is None:
        if factory is not None or data is not None:
            raise UserError("factory= and data= say how to save; name a folder with save=, too.")
        return run_training(model, split, part=part, on_epoch=on_epoch, **settings)
    if part != "train":
        raise UserError(
            f"A network trained on the part {part!r} is a Retrain, not an original; save what "
            "qu.forget(model, split, 'retrain', fresh=...) gives."
        )
    Run.check_free(Path(save))
    fresh, rows = _untrained(model), list[Epoch]()

    def keep(row: Epoch) -> None:
        rows.append(row)
        on_epoch(row)

    started = time.perf_counter()
    run_training(model, split, on_epoch=keep, **settings)
    seconds = {"training": round(time.perf_counter() - started, 3)}
    used = {k: v for k, v in settings.items() if k in OptimizerConfig.model_fields}
    recipe = OptimizerConfig.parse(used).to_dict()
    made = _made(model, split, rows, RunInfo(seconds))
    save_original(made, Path(save), recipe, from_scratch=fresh, factory=factory, data=data)
    return model


def save(
    model: nn.Module,
    split: Split,
    path: str | Path,
    *,
    factory: str | None = None,
    data: bool | str | Path | None = None,
) -> Path:
    """Keep a trained network as a run folder that every command takes.

    `qu.train(..., save=path)` does so with the history and the settings, which Retrain then
    follows; `result.save(path)` keeps a network that has forgotten.

    Args:
        model: A network that was trained on the split's training part and on nothing else.
        split: With no request to forget yet.
        path: A new folder.
        factory: What builds the network, as "package.module:name", with no argument but
            `num_classes`. Without it, commands must be told with `--model`, and Python loads it by
            `qu.load(path, model=network)`. Not needed for networks of `qu.ModelSpec`.
        data: Data that `qu.load_dataset` read are found again. Of others, True keeps a copy in the
            folder, and "FILE.npz" one there, to be shared by several runs; without one of them,
            commands that need samples refuse.

    Example:
        >>> import tempfile
        >>> import qunlearn as qu
        >>> split = qu.Split.make(qu.load_dataset("digits", subset=100))
        >>> model = qu.ModelSpec("cnn", classes=10, channels=1, size=8, width=0.25).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
        >>> path = qu.save(model, split, tempfile.mkdtemp())
        >>> again = qu.load(path)
    """
    if split.requests:
        raise UserError(
            "The split has a request to forget, and an original has forgotten nothing; save it "
            "with the split before the request, or save the result of qu.forget."
        )
    Run.check_free(Path(path))
    made = _made(model.eval(), split, [], RunInfo({"training": 0.0}))
    save_original(made, Path(path), {}, from_scratch=False, factory=factory, data=data)
    return Path(path)


def forget(
    model: nn.Module,
    split: Split,
    method: str = "calibrated",
    *,
    fresh: Callable[[int], nn.Module] | None = None,
    on_epoch: Rows = lambda row: None,
    **settings: Any,
) -> Result:
    """Make a copy of a model forget what the split's last request names.

    Args:
        model: A trained classifier, quantized or not; it is not changed.
        split: Says what to forget and what to retain.
        method: The method's name; see `qunlearn methods`.
        fresh: For "retrain": a function of a seed that returns the untrained network.
        on_epoch: Gets a row of numbers after each epoch.
        **settings: Those of the method, such as `epochs=5, alpha=0.5`; also `fabric` (devices and
            precision) and `checkpoint` (a file to resume from).

    Example:
        >>> import qunlearn as qu
        >>> split = qu.Split.random(qu.load_dataset("digits", subset=200), fraction=0.1)
        >>> model = qu.ModelSpec("resnet18", classes=10, channels=1, size=8, width=0.125).build()
        >>> model = qu.train(qu.quantize(model, qu.QuantSpec()), split, epochs=1)
        >>> result = qu.forget(model, split, epochs=1, batch_size=50)
        >>> [row.epoch for row in result.history]
        [1]
        >>> print(result.verdict)  # doctest: +ELLIPSIS
        Inconclusive: ...
    """
    forgotten = run_method(model, split, method, fresh=fresh, on_epoch=on_epoch, **settings)
    return Result(
        **vars(forgotten), method=method, split=split, original=copy.deepcopy(model).eval()
    )


@dataclass(frozen=True, eq=False, repr=False)
class Result(Forgotten):
    """What comes of forgetting: `print(result.verdict)` says whether it forgot.

    Attributes:
        method: How it was made to forget.
        split: What it was to forget.
        original: A copy of the network as it was before.
    """

    method: str
    split: Split
    original: nn.Module

    def __repr__(self) -> str:
        return f"Result({self.method}: {self.split}; {self.seconds:.1f} s)"

    @cached_property
    def outputs(self) -> dict[str, Tensor]:
        """The network's outputs on every part that is measured."""
        return predictions(self.model, self.split)

    @cached_property
    def metrics(self) -> RunMetrics:
        """The scores, those before forgetting, and what the method found."""
        before = scores_of(predictions(self.original, self.split), self.split)
        after = scores_of(self.outputs, self.split)
        return forgotten_metrics(after, before, self.findings, self.split)

    @property
    def verdict(self) -> Verdict:
        """Whether it forgot; prints as plain words, as the command line and the page have them."""
        from qunlearn.report.judge import verdict_of

        return verdict_of(self.metrics, self.method)

    def save(
        self,
        path: str | Path,
        *,
        origin: str | Path | None = None,
        factory: str | None = None,
        data: bool | str | Path | None = None,
    ) -> Path:
        """Keep it as a run folder that every command takes: evaluate, report, export, forget.

        Args:
            path: A new folder.
            origin: The run of the network that was given to `forget`, if that was saved; the page
                then shows it beside this one, and Retrain follows its training.
            factory: What builds the network; see `qunlearn.save`.
            data: Whether to keep the samples too; see `qunlearn.save`. By default the origin's are
                used.
        """
        Run.check_free(Path(path))
        chosen = find_method(self.method)
        seconds = {"forgetting": round(self.seconds, 3)}
        info = RunInfo(seconds, chosen.name, chosen.revision)
        made = Made(self.model, self.split, self.outputs, self.metrics, self.history, info)
        save_forgotten(
            made,
            Path(path),
            self.method,
            self.config.to_dict(),
            self.original,
            origin=None if origin is None else Path(origin),
            factory=factory,
            data=data,
        )
        return Path(path)


def _made(model: nn.Module, split: Split, history: list[Epoch], info: RunInfo) -> Made:
    """A trained network, measured."""
    outputs = predictions(model, split)
    return Made(model, split, outputs, scores_of(outputs, split), history, info)


def _untrained(model: nn.Module) -> bool:
    """Whether no batch has passed through a network in training, as far as it can be seen."""
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    return not any(norm.num_batches_tracked for norm in norms if norm.track_running_stats)
