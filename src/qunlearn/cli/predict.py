"""`qunlearn predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qunlearn.cli.output import print_json, print_text_table, say_error
from qunlearn.cli.settings import Json
from qunlearn.errors import UserError

File = Annotated[Path, typer.Argument(help="A file that `qunlearn export` wrote.")]
Images = Annotated[list[Path], typer.Argument(help="Image files.")]


def command(file: File, images: Images, json: Json = False) -> None:
    """Name what is in images, with an exported ONNX file.

    Each image is resized to what the network takes, and normalised as the file says. Shows the most
    probable classes. Images that cannot be read are named, and the others shown all the same; the
    exit code is 2 then.

    Example:
      qunlearn predict model.onnx cat.png dog.jpg
    """
    from qunlearn.export.predict import predict_images
    from qunlearn.report.predicted import predictions_of_images

    results = list(zip(map(str, images), predict_images(file, images), strict=True))
    predicted = [(image, classes) for image, classes in results if isinstance(classes, dict)]
    errors = [error for _, error in results if isinstance(error, UserError)]
    if json:
        shown = [{"image": image, "classes": classes} for image, classes in predicted]
        print_json({"file": str(file), "images": shown})
    elif predicted:
        print_text_table(predictions_of_images(predicted))
    for error in errors:
        say_error(error)
    if errors:
        raise typer.Exit(2)
