"""`qunlearn init`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, say
from qunlearn.cli.settings import Json
from qunlearn.errors import UserError

File = Annotated[Path, typer.Argument(help="The settings file to write.")]
Dataset = Annotated[
    str | None,
    typer.Option(help="Your data: a folder with one folder of images a class, or an .npz file."),
]
Model = Annotated[
    str | None,
    typer.Option(help="resnet18 (default), mobilenetv2, cnn or package.module:factory."),
]
Bits = Annotated[
    str | None,
    typer.Option(
        metavar="<int>", help="Bits of weights and activations: 2 to 8, or 32. Default: 4."
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(help="Your trained network, as a safetensors file; without, one is trained."),
]

QUESTIONS = {
    "dataset": (
        "Where is your data (a folder with one folder of images a class, or an .npz file)",
        None,
    ),
    "model": ("Which network (resnet18, mobilenetv2, cnn, or package.module:factory)", "resnet18"),
    "bits": ("How many bits for weights and activations (2 to 8, or 32)", "4"),
    "weights": ("Your trained network as a safetensors file (empty: train one)", ""),
}


def command(
    file: File = Path("qunlearn.toml"),
    dataset: Dataset = None,
    model: Model = None,
    bits: Bits = None,
    weights: Weights = None,
    json: Json = False,
) -> None:
    """Write a commented settings file for your own data, from four answers.

    Asks for what no flag answers; where there is nobody to ask, as in a script, the defaults hold.

    Examples:
      qunlearn init

      qunlearn init mine.toml --dataset images/ --model resnet18 --bits 4

      qunlearn init mine.toml --dataset images.npz --weights trained.safetensors
    """
    from qunlearn.runs.starter import StarterConfig, write_starter

    flags = {"dataset": dataset, "model": model, "bits": bits, "weights": weights}
    answers = {name: str(value) for name, value in flags.items() if value is not None}
    if sys.stdin.isatty() and not json:
        for name, (question, usual) in QUESTIONS.items():
            if name not in answers:
                answers[name] = typer.prompt(
                    question,
                    default=usual,
                    show_default=bool(usual),
                    value_proc=partial(_checked, name),
                )
    settings = StarterConfig.parse({name: answer for name, answer in answers.items() if answer})
    starter = write_starter(settings, file)
    if json:
        print_json({"file": str(starter.file), "commands": starter.commands})
        return
    say(f"Written: {starter.file}. What to run next:")
    for line in starter.commands:
        say(f"  {line}")


def _checked(name: str, answer: str) -> str:
    """The answer; one that cannot be right is asked for again."""
    from qunlearn.runs.starter import check_answer

    try:
        if answer:
            check_answer(name, answer)
    except UserError as error:
        raise typer.BadParameter(str(error)) from None
    return answer
