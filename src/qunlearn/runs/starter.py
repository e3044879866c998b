"""A settings file to begin with: commented, for somebody's own data, from four answers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from qunlearn.data.load import find_source
from qunlearn.data.sources.decode import size_of
from qunlearn.data.sources.folder import files_of
from qunlearn.errors import UserError, unknown
from qunlearn.models import models
from qunlearn.runs.config import AdoptConfig, TrainConfig
from qunlearn.store import toml
from qunlearn.store.files import write_text
from qunlearn.store.pickled import refuse_pickled
from qunlearn.training.config import Bits, Config

FULL_PRECISION = 32
LOOKED_AT = 1000
"""How many of a folder's images are looked at."""


class StarterConfig(Config):
    """The four answers."""

    dataset: str = Field(
        ..., description="Your data: a folder with one folder of images a class, or an .npz file."
    )
    model: str = Field(
        "resnet18", description="The network: resnet18, mobilenetv2, cnn or package.module:factory."
    )
    bits: Bits = Field(4, description="Bits of weights and activations: 2 to 8, or 32.")
    weights: Path | None = Field(
        None, description="Your trained network as a safetensors file, if you have one already."
    )

    @property
    def command(self) -> str:
        """What makes a run of it: `train`, or `adopt` where there is a trained network."""
        return "train" if self.weights is None else "adopt"

    @property
    def own_code(self) -> bool:
        """Whether the network is built by code of the user's own, which no file may name."""
        return ":" in self.model


@dataclass(frozen=True)
class Starter:
    """A settings file that was written.

    Attributes:
        file: Where it is.
        commands: What to run with it, in this order.
    """

    file: Path
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The data that was named.

    Attributes:
        source: Its kind, as `find_source` calls it.
        place: Its folder or file, if it is no named set.
    """

    source: str
    place: Path | None

    @property
    def ids(self) -> str:
        """What its ids are."""
        if self.source == "folder" and self.place is not None:
            ids = (name for name in files_of(self.place) if name.startswith("train/"))
            return f"an id is the part and an image's path, such as {next(ids)}"
        return "an id is one of `id_train`, or else train/0, train/1 and so on"

    @property
    def sizes_differ(self) -> bool:
        """Whether a folder's images have several sizes, by about a thousand of them."""
        if self.source != "folder" or self.place is None:
            return False
        files = list(files_of(self.place).values())
        return len({size_of(file) for file in files[:: max(1, len(files) // LOOKED_AT)]}) > 1


@dataclass(frozen=True)
class Entry:
    """A line of the file.

    Attributes:
        value: The setting's value.
        active: False if the line is commented out, to show what could be set.
    """

    value: object
    active: bool = True


def write_starter(answers: StarterConfig, file: Path) -> Starter:
    """Write the settings file; nothing is written if an answer cannot be right."""
    data = _check(answers)
    if file.exists():
        raise UserError(f"There is a file {str(file)!r} already; name another, or move it away.")
    commands = _commands(answers, file)
    write_text(file, starter_text(answers, data, commands))
    return Starter(file, commands)


def check_answer(name: str, answer: str) -> None:
    """Raise if one answer cannot be right, whatever the others are."""
    _check(StarterConfig.parse({"dataset": "digits", name: answer}))


def starter_text(answers: StarterConfig, data: Found, commands: tuple[str, ...]) -> str:
    """The content of the file: each setting below what it means.

    Args:
        answers: The four answers.
        data: The data that was found.
        commands: What to run with the file.
    """
    kind = TrainConfig if answers.weights is None else AdoptConfig
    lines = [
        f"# Settings of `qunlearn {answers.command}`. Edit what you like; what follows a # is off.",
        "# Each setting is a flag, too, and a flag wins over this file.",
        "#",
        *(f"#     {command}" for command in commands),
        "#",
        f"# ids.csv: the samples to forget, one id a line; {data.ids}.",
    ]
    for title, entries in _entries(answers, data).items():
        lines += ["", f"# {title}"]
        for name, entry in entries.items():
            written = toml.dumps({name: entry.value}).strip()
            lines += ["", f"# {kind.model_fields[name].description}"]
            lines.append(written if entry.active else f"# {written}")
    return "\n".join([*lines, ""])


def _entries(answers: StarterConfig, found: Found) -> Mapping[str, Mapping[str, Entry]]:
    """The settings, by the heading that they stand under."""
    data = {"dataset": Entry(answers.dataset)}
    if found.source == "folder":
        data["image_size"] = Entry(64, active=found.sizes_differ)
    elif found.source not in ("npz", "digits"):
        data["data_dir"] = Entry("data", active=False)
    data["metadata"] = Entry("people.csv", active=False)
    width = {} if answers.own_code else {"width": Entry(1.0)}
    network = {"model": Entry(answers.model, active=not answers.own_code), **width}
    bits = {
        "weight_bits": Entry(answers.bits),
        "act_bits": Entry(answers.bits),
        "quantizer": Entry("lsq+"),
    }
    training = {"batch_size": Entry(64), "seed": Entry(0)}
    if answers.weights is None:
        data["held_out"] = Entry(0.1)
        training = {"epochs": Entry(60), "lr": Entry(0.1), **training}
    else:
        data |= {"held_out": Entry("test:0.2"), "trained_on": Entry("trained.csv", active=False)}
        network = {"weights": Entry(answers.weights), **network}
        # Weights that are rounded to few bits have to be trained a little to recover.
        tuned = 0 if answers.bits == FULL_PRECISION else 5
        training = {"epochs": Entry(tuned), "lr": Entry(0.01), **training}
    machine = {"threads": Entry(4, active=False), "accelerator": Entry("auto")}
    titles = ("Data", "Network", "Bits", "Training", "Machine")
    return dict(zip(titles, (data, network, bits, training, machine), strict=True))


def _commands(answers: StarterConfig, file: Path) -> tuple[str, ...]:
    code = ["--model", answers.model] if answers.own_code else []
    make = ["qunlearn", answers.command, "--config", str(file), *code, "--out", "runs/original"]
    forget = ["qunlearn", "forget", "runs/original", *code, "--ids", "ids.csv"]
    return (
        shlex.join(make),
        shlex.join([*forget, "--out", "runs/forgotten"]),
        "qunlearn report runs/forgotten",
    )


def _check(answers: StarterConfig) -> Found:
    """What the data is; raises if the data, the network or its weights cannot be found."""
    source, place = find_source(answers.dataset, None)
    if place is not None and not place.exists():
        raise UserError(f"There is no file {str(place)!r}; name your data by its path.")
    if not answers.own_code and answers.model not in models:
        raise unknown("model", answers.model, [*models, "package.module:factory"])
    if answers.weights is not None and not answers.weights.is_file():
        raise UserError(
            f"There is no file {str(answers.weights)!r}; name the trained network's safetensors "
            "file, or leave it out to train one."
        )
    if answers.weights is not None:
        refuse_pickled(answers.weights)
    return Found(source, place)
